"""Gradients and optimizer state as they are now, cheap enough for a thread to ask while a cell trains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import nn

from devwidget.capture.modules import own_tensors, walk
from devwidget.capture.object_fields import dict_of
from devwidget.capture.recording.event_log import device_id
from devwidget.capture.tensors import tensors_in
from devwidget.records.device import DeviceId
from devwidget.records.memory import allocated_bytes


def training_bytes(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[DeviceId, dict[str, int]]:
    """Bytes of gradients and of optimizer state, by device; only attributes are read, so any thread may ask."""
    held: dict[DeviceId, dict[str, int]] = {}
    _add(held, "gradients", _gradients(model))
    if optimizer is not None:
        _add(held, "optimizer", tensors_in(dict(dict_of(optimizer).get("state") or {}), depth=4))
    return held


def _gradients(model: nn.Module) -> Iterator[torch.Tensor]:
    parameters = (tensor for _, module in walk(model) for tensor in own_tensors(module).values())
    return (grad for tensor in parameters if tensor.is_leaf and (grad := tensor.grad) is not None)


def _add(held: dict[DeviceId, dict[str, int]], category: str, tensors: Iterable[torch.Tensor]) -> None:
    for tensor in {id(tensor): tensor for tensor in tensors}.values():  # tied ones once
        if tensor.layout is torch.strided:
            device = device_id(tensor.device)
            size = allocated_bytes(tensor.nbytes, device.kind)
            parts = held.setdefault(device, {})
            parts[category] = parts.get(category, 0) + size
