"""Softmax of halves in single precision, which GPUs compute in one kernel: no copy of what goes in is made.

Source: `softmax` and `log_softmax` in `SoftMax.cpp`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function

from devwidget.gpus import labels
from devwidget.gpus.patching import Patches

_aten: Any = torch.ops.aten
_KERNELS = {name: getattr(_aten, f"_{name}").default for name in ("softmax", "log_softmax")}


def install(patches: Patches) -> None:
    """Put it in front of the functions, which make the copy on the CPU."""
    for name in _KERNELS:
        for owner in (torch, torch.Tensor, torch.special):
            patches.set(owner, name, _fuse_cast(owner, name, getattr(owner, name)))


def _fuse_cast(owner: Any, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def soften(*args: Any, **kwargs: Any) -> Any:
        tensor = args[0] if args else kwargs.get("input")
        if has_torch_function((tensor,)):
            return handle_torch_function(getattr(owner, name), (tensor,), *args, **kwargs)
        result = run_fused(name, *args, **kwargs) if kwargs.keys() <= {"dim", "dtype"} else None
        return original(*args, **kwargs) if result is None else result

    return soften


def run_fused(name: str, tensor: Any = None, dim: Any = None, dtype: Any = None) -> Any:
    """The result where GPUs have one kernel for it, else None."""
    if dtype is not torch.float32 or type(dim) is not int or getattr(tensor, "dtype", None) is not torch.float16:
        return None
    return _KERNELS[name](tensor, dim, True) if labels.label_of(tensor) >= 0 else None
