"""Plain tensors and DTensors in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from devwidget.capture.faults.bypassed_hooks import find_bypassed_hook
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.modules import own_tensors, walk_modules
from devwidget.capture.object_fields import is_among
from devwidget.capture.snapshot.odd_tensors import is_distributed
from devwidget.capture.snapshot.wrapper_facts import find_wrapping
from devwidget.capture.tensors import device_of
from devwidget.records.errors import message

_RUN_HOOKS = frozenset({"_call_impl", "wrapped_method"})
"""Functions of torch that run the hooks of `fully_shard`: for a call of the module, and for a registered method."""


def handle_failure(call: FailedCall) -> Any:
    """Record the plain tensors. A repair would communicate, which the other ranks may not do."""
    if "mixed torch.Tensor and DTensor" not in message(call.error):
        return NOT_OURS
    tensors = call.tensors()
    distributed = [tensor for tensor in tensors if is_distributed(tensor)]
    plain = [tensor for tensor in tensors if not is_distributed(tensor)]
    strays = [tensor for tensor in plain if tensor.numel() != 1]  # torch replicates a single number itself
    if distributed and strays:
        bypassed = find_bypassed_hook(call.frame, lambda module: _is_sharded(module, distributed), _RUN_HOOKS)
        call.report("dtensor", strays, device_of(distributed[0]), NOT_OURS, bypassed)
    return NOT_OURS


def _is_sharded(module: nn.Module, tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether `fully_shard` was applied to a module that has one of these tensors."""
    if find_wrapping(type(module)).word != "FSDP2":
        return False
    owned = [tensor for _, part in walk_modules(module) for tensor in own_tensors(part).values()]
    return any(is_among(tensor, owned) for tensor in tensors)
