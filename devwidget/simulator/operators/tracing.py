"""Operators that somebody else runs: torch's tracers, fake tensors, and subclasses that are made of other tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode, _pop_mode_temporarily

NOT_THEIRS = object()
"""The answer for an operator on ordinary tensors, which the simulator runs itself."""
modes_beneath = torch._C._len_torch_dispatch_stack
_ORDINARY: Any = torch.Tensor.__torch_dispatch__
"""Of every class that leaves operators to torch, such as parameters that have no shape yet."""
_FAKE = torch._C._TorchDispatchModeKey.FAKE


def run(mode: TorchDispatchMode, func: Any, types: Iterable[type], args: tuple[Any, ...], kwargs: Any) -> Any:
    """Have an operator run by whom it concerns.

    Args:
        mode: the simulator's, which is not active here.
        types: the subclasses among the arguments.
    """
    if torch._C._get_dispatch_mode(_FAKE) is not None:
        return func(*args, **(kwargs or {}))  # nothing real happens, and fake tensors know their virtual device
    above = _get_current_dispatch_mode()
    if above is not None and above.is_infra_mode():  # a tracer, which is to see what the user wrote, and we what is run
        with _pop_mode_temporarily(), mode:
            return above.__torch_dispatch__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
    if any(getattr(kind, "__torch_dispatch__", _ORDINARY) is not _ORDINARY for kind in types):
        return NotImplemented  # the subclass takes itself apart, and we see its parts
    return NOT_THEIRS
