"""The kind of accelerator that torch has here, or virtual GPUs play, and how many: asked for without waking a driver."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from devwidget.records.device import CUDA, KINDS


def kind_here() -> str:
    """The device type that a bare number means; CUDA where there is no accelerator, as in torch's own documentation."""
    found = torch.accelerator.current_accelerator()
    return CUDA.type if found is None else found.type


def count_of(kind: str) -> int:
    """How many devices of a kind are visible."""
    module = getattr(torch, kind, None)
    return module.device_count() if isinstance(module, ModuleType) else 0


def list_devices() -> tuple[str, ...]:
    """Every device that exists here, `cpu` last."""
    return (*(f"{kind}:{index}" for kind in KINDS for index in range(count_of(kind))), "cpu")


def awake_module() -> Any:
    """The accelerator's module, such as `torch.cuda`, once it has been used; None before, and where it does not say so."""
    module = torch.get_device_module(kind_here())
    return module if getattr(module, "is_initialized", bool)() else None
