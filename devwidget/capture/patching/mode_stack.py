"""Modes of torch that are left by identity, wherever they are on the stack by then; what is above them stays.

A mode that ends in another thread than its own, or while torch holds it for a call, stays on its stack and does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

_any_on_stack: Callable[[], bool] | None = getattr(_python_dispatch, "any_torch_dispatch_mode_on_stack", None)
_tell_dynamo: Callable[[bool], None] | None = getattr(_python_dispatch, "set_is_in_mode_without_ignore_compile_internals", None)


class FunctionMode(TorchFunctionMode):
    """A function mode of ours."""

    def __enter__(self) -> Any:
        for each in _get_current_function_mode_stack():  # type: ignore[no-untyped-call]
            if type(each) is EndedFunctionMode:
                _taken_out(each, _get_current_function_mode_stack(), _pop_mode, _push_mode)  # type: ignore[no-untyped-call]
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *exc_info: object) -> None:
        self.leave()

    def leave(self) -> None:
        """End, wherever it is."""
        if not _taken_out(self, _get_current_function_mode_stack(), _pop_mode, _push_mode):  # type: ignore[no-untyped-call]
            self.__class__ = EndedFunctionMode


class EndedFunctionMode(FunctionMode):
    """What was a mode of ours."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the call."""
        return func(*args, **(kwargs or {}))


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode of ours.

    torch's own `__enter__` and `__exit__` save and restore flags of the whole process, last in, first out. Where threads
    or other modes cross that leaves them set for ever, so ours leave them as they are; dynamo looks at the stack.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap every call in `torch._dynamo.disable`: 2 us per operator, and a first import of 0.9 s. It is
        # not needed, because Dynamo skips every frame while a dispatch mode is active.
        return False

    def __enter__(self) -> Any:
        for each in _get_current_dispatch_mode_stack():
            if type(each) is EndedDispatchMode:
                _taken_out(each, _get_current_dispatch_mode_stack(), _pop, _push)
        self._push()
        _look_at_stack()
        return self

    def _push(self) -> None:
        _push(self)

    def __exit__(self, *exc_info: object) -> None:
        self.leave()

    def leave(self) -> None:
        """End, wherever it is."""
        if _taken_out(self, _get_current_dispatch_mode_stack(), _pop, _push):
            _look_at_stack()
        else:
            self.end()

    def end(self) -> None:
        """Do nothing from now on, in whatever thread it is."""
        self.__class__ = EndedDispatchMode


class EndedDispatchMode(DispatchMode):  # type: ignore[no-untyped-call]
    """What was a mode of ours."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator."""
        return func(*args, **(kwargs or {}))


def push_below(mode: Any, is_above: Callable[[Any], bool]) -> None:
    """Push a dispatch mode under the lowest of those that are to be above it."""
    stack = _get_current_dispatch_mode_stack()
    lowest = next((index for index, each in enumerate(stack) if is_above(each)), len(stack))
    above = [_pop() for _ in stack[lowest:]]
    for each in (mode, *reversed(above)):
        _push(each)


def _taken_out(mode: Any, stack: list[Any], pop: Callable[[], Any], push: Callable[[Any], None]) -> bool:
    """Take a mode off this thread's stack; False if it is not there."""
    if not any(each is mode for each in stack):
        return False
    above = []
    while (top := pop()) is not mode:
        above.append(top)
    for each in reversed(above):
        push(each)
    return True


def _pop() -> Any:
    return torch._C._pop_torch_dispatch_stack(None)


def _push(mode: Any) -> None:
    torch._C._push_on_torch_dispatch_stack(mode)


def _look_at_stack() -> None:
    """Compiled code is run under no mode but torch's own: tell the guards of this thread."""
    if _tell_dynamo is not None and _any_on_stack is not None:
        _tell_dynamo(_any_on_stack())
