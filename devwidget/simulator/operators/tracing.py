"""Operators that somebody else runs: torch's tracers, fake tensors, and subclasses that are made of other tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from devwidget.simulator import torch_internals
from devwidget.simulator.torch_internals import DispatchModeKey, dispatch_mode, dispatch_mode_of, pop_mode_temporarily

NOT_THEIRS = object()
"""The answer for an operator on ordinary tensors, which the simulator runs itself."""
ORDINARY = ((), (torch.Tensor,))
"""What torch names as the subclasses among the arguments where there are none; autograd names tensors themselves."""
modes_beneath: Callable[[], int] = torch_internals.modes_beneath
_ORDINARY: Any = torch.Tensor.__torch_dispatch__
"""Of every class that leaves operators to torch, such as parameters that have no shape yet."""
_FAKE = DispatchModeKey.FAKE


def run(mode: torch_internals.TorchDispatchMode, func: Any, types: Iterable[type], args: tuple[Any, ...], kwargs: Any) -> Any:
    """Have an operator run by whom it concerns.

    Args:
        mode: the simulator's, which is not active here.
        types: the subclasses among the arguments.
    """
    if dispatch_mode_of(_FAKE) is not None:
        return func(*args, **(kwargs or {}))  # nothing real happens, and fake tensors know their virtual device
    above = dispatch_mode()
    if above is not None and above.is_infra_mode():  # a tracer, which is to see what the user wrote, and we what is run
        with pop_mode_temporarily(), mode:
            return above.__torch_dispatch__(func, types, args, kwargs or {})
    if any(getattr(kind, "__torch_dispatch__", _ORDINARY) is not _ORDINARY for kind in types):
        return NotImplemented  # the subclass takes itself apart, and we see its parts
    return NOT_THEIRS
