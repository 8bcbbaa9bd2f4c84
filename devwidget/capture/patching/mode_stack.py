"""Modes that can be left by identity, wherever they are on their stack. Modes above them stay.

A mode that ends in another thread, or while torch holds it for a call, stays on its stack and does nothing.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

from torch.overrides import TorchFunctionMode

from devwidget.capture import torch_internals
from devwidget.capture.interrupts import no_gradients, uninterrupted
from devwidget.capture.patching import operator_key


class FunctionMode(TorchFunctionMode):
    """A function mode of devwidget."""

    def __enter__(self) -> Any:
        for each in torch_internals.function_modes():
            if isinstance(each, EndedFunctionMode):
                self._take_out(each)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *exc_info: object) -> None:
        self.leave_mode()

    @staticmethod
    def _take_out(mode: Any) -> bool:
        stack = torch_internals.function_modes()
        if all(each is not mode for each in stack):
            return False
        restack_functions([each for each in stack if each is not mode])
        return True

    def leave_mode(self) -> None:
        """End the mode, wherever it is."""
        if not self._take_out(self):
            # It is on the stack of another thread, which this one cannot reach: there it only forwards from now on.
            self.__class__ = _ended_class(EndedFunctionMode, type(self))

    def leave_after_call(self, frame: FrameType) -> None:
        """End the mode inside a call that a frame makes, and remove it from the stack at the next line.

        torch puts a mode back after each call, so a mode cannot be removed during one. Python reports the next line of the
        frame, and functions that begin. If a debugger already listens, the mode stays and passes calls on.
        """
        self.leave_mode()
        if sys.gettrace() is not None:
            return

        def leave_stack(*event: object) -> None:
            if any(each is self for each in torch_internals.function_modes()):
                sys.settrace(None)
                frame.f_trace = None
                self._take_out(self)

        frame.f_trace = leave_stack
        sys.settrace(leave_stack)


class EndedFunctionMode(FunctionMode):
    """A function mode that has ended."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class DispatchMode:
    """A dispatch mode of devwidget: called for each operator below autograd, and below the modes and subclasses of the user.

    It is not a `TorchDispatchMode`: while one is active, even an empty one, autograd computes differently. See `operator_key`.
    """

    def __enter__(self) -> Any:
        operator_key.register_key()
        stack = [each for each in dispatch_modes() if not isinstance(each, EndedDispatchMode)]
        stack.insert(self._insert_mode(stack), self)
        operator_key.replace_modes(stack)
        return self

    def _insert_mode(self, stack: list[DispatchMode]) -> int:
        """Return the position of the mode on the stack of its thread: the top."""
        return len(stack)

    def __exit__(self, *exc_info: object) -> None:
        self.leave_mode()

    def leave_mode(self) -> None:
        """End the mode, wherever it is."""
        stack = dispatch_modes()
        others = [each for each in stack if each is not self]
        if len(others) < len(stack):
            operator_key.replace_modes(others)
        else:
            self.__class__ = _ended_class(EndedDispatchMode, type(self))

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError


class EndedDispatchMode(DispatchMode):
    """A dispatch mode that has ended."""

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return redispatch(func, args, kwargs)


def _ended_class(passing: type, kind: type) -> Any:
    """Return the class of an ended mode: it passes calls on, and keeps the methods for a mode that another thread is in."""
    if issubclass(kind, passing):
        return kind
    return type(f"Ended{kind.__name__}", (passing, kind), {})


def leave_modes(state: object) -> None:
    """End all modes of a recording that are still active in this thread: a signal may have interrupted their end."""
    for mode in (*torch_internals.function_modes(), *dispatch_modes()):
        if isinstance(mode, (FunctionMode, DispatchMode)) and has_mode_of(state, [mode]):
            mode.leave_mode()


def has_mode_of(state: object, modes: Iterable[Any]) -> bool:
    """Return whether one of these modes is of a recording."""
    return any(getattr(mode, "_state", None) is state for mode in modes)


redispatch = operator_key.run_below
dispatch_modes: Callable[[], list[DispatchMode]] = operator_key.active_modes


@contextlib.contextmanager
def without_any_dispatch_mode() -> Iterator[None]:
    """Run operators without any dispatch mode in this thread, neither ours nor the user's. Tensor subclasses stay active."""
    with torch_internals.disable_current_modes(), without_dispatch_modes(lambda mode: True):
        yield


@contextlib.contextmanager
def reading_values() -> Iterator[None]:
    """Compute with tensors of the program, without its modes and without gradients."""
    with uninterrupted(), torch_internals.DisableTorchFunction(), no_gradients(), without_any_dispatch_mode():
        yield


@contextlib.contextmanager
def without_dispatch_modes(is_hidden: Callable[[DispatchMode], bool]) -> Iterator[None]:
    """Remove some modes from this thread's stack in the block."""
    before = dispatch_modes()
    operator_key.replace_modes([mode for mode in before if not is_hidden(mode)])
    try:
        yield
    finally:
        operator_key.replace_modes(before)


def restack_functions(wanted: list[Any]) -> None:
    """Replace this thread's stack of function modes."""
    stack = torch_internals.function_modes()
    pairs = zip(wanted, stack, strict=False)
    same = next((index for index, (one, other) in enumerate(pairs) if one is not other), min(len(wanted), len(stack)))
    for _ in stack[same:]:
        torch_internals.pop_function_mode()
    for each in wanted[same:]:
        torch_internals.push_function_mode(each)
