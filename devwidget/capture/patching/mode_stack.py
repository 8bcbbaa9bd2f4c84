"""Modes of torch that are left by identity, wherever they are on the stack by then; what is above them stays.

A mode that ends in another thread than its own, or while torch holds it for a call, stays on its stack and does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

from devwidget.capture import torch_internals
from devwidget.capture.interrupts import sure_exit


class FunctionMode(TorchFunctionMode):
    """A function mode of ours."""

    inside = False

    def __enter__(self) -> Any:
        self.inside = True
        for each in torch_internals.function_modes():
            if isinstance(each, EndedFunctionMode):
                self._take_out(each)
        return super().__enter__()  # type: ignore[no-untyped-call]

    @sure_exit
    def __exit__(self, *exc_info: object) -> None:
        self.leave()

    @staticmethod
    def _take_out(mode: Any) -> bool:
        pop, push = torch_internals.pop_function_mode, torch_internals.push_function_mode
        return _taken_out(mode, torch_internals.function_modes, pop, push)

    def leave(self) -> None:
        """End, wherever it is."""
        if not self._take_out(self):
            self.__class__ = _ended(EndedFunctionMode, type(self))


class EndedFunctionMode(FunctionMode):
    """What was a mode of ours."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the call."""
        return func(*args, **(kwargs or {}))


class DispatchMode(torch_internals.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode of ours.

    torch's own `__enter__` and `__exit__` save and restore flags of the whole process, last in, first out. Where threads
    or other modes cross that leaves them set for ever, so ours leave them as they are; dynamo looks at the stack.
    """

    inside = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap every call in `torch._dynamo.disable`: 2 us per operator, and a first import of 0.9 s. It is
        # not needed, because Dynamo skips every frame while a dispatch mode is active.
        return False

    def __enter__(self) -> Any:
        self.inside = True
        for each in torch_internals.dispatch_modes():
            if isinstance(each, EndedDispatchMode):
                _taken_out(each, torch_internals.dispatch_modes, _pop, _push)
        self._push()
        _look_at_stack()
        return self

    def _push(self) -> None:
        _push(self)

    @sure_exit
    def __exit__(self, *exc_info: object) -> None:
        self.leave()

    def leave(self) -> None:
        """End, wherever it is."""
        if not _taken_out(self, torch_internals.dispatch_modes, _pop, _push):
            self.end()
        _look_at_stack()

    def end(self) -> None:
        """Do nothing from now on, in whatever thread it is."""
        self.__class__ = _ended(EndedDispatchMode, type(self))


class EndedDispatchMode(DispatchMode):  # type: ignore[no-untyped-call]
    """What was a mode of ours."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator."""
        return redispatch(func, types, args, kwargs)


def _ended(passing: type, kind: type) -> Any:
    """What a mode of this kind becomes: it passes calls on, and has the methods for one that another thread is in."""
    return kind if issubclass(kind, passing) else type(f"Ended{kind.__name__}", (passing, kind), {})


_skipping, _OpOverload = torch_internals.skipping_function_modes, torch_internals.OpOverload


def redispatch(func: Any, types: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Run an operator that has come down to a dispatch mode as if the mode was not there.

    Function modes and tensor classes are asked above autograd. What the engine or a script calls is no call for them, and
    `func(*args)` would be one. Before torch 2.13 it stays one.
    """
    if type(func) is _OpOverload and _skipping is not None:
        return _skipping(func, types, args, kwargs or {})
    return func(*args, **(kwargs or {}))


def push_below(mode: Any, is_above: Callable[[Any], bool]) -> None:
    """Push a dispatch mode under the lowest of those that are to be above it."""
    stack = torch_internals.dispatch_modes()
    lowest = next((index for index, each in enumerate(stack) if is_above(each)), len(stack))
    wanted = [*stack[:lowest], mode, *stack[lowest:]]
    _restack(wanted, torch_internals.dispatch_modes, _pop, _push)


def _taken_out(mode: Any, read: Callable[[], list[Any]], pop: Callable[[], Any], push: Callable[[Any], None]) -> bool:
    """Take a mode off this thread's stack; False if it is not there."""
    stack = read()
    place = next((index for index in reversed(range(len(stack))) if stack[index] is mode), None)
    if place is None:
        return False
    _restack(stack[:place] + stack[place + 1 :], read, pop, push)
    return True


def _restack(wanted: list[Any], read: Callable[[], list[Any]], pop: Callable[[], Any], push: Callable[[Any], None]) -> None:
    """Make the stack so; no mode of the user's is lost if that is cut short."""
    try:
        _move(wanted, read(), pop, push)
    except BaseException:
        _move(wanted, read(), pop, push)
        raise


def _move(wanted: list[Any], stack: list[Any], pop: Callable[[], Any], push: Callable[[Any], None]) -> None:
    pairs = zip(wanted, stack, strict=False)
    same = next((index for index, (one, other) in enumerate(pairs) if one is not other), min(len(wanted), len(stack)))
    for _ in stack[same:]:
        pop()
    for each in wanted[same:]:
        push(each)


def _pop() -> Any:
    return torch_internals.pop_dispatch_mode(None)


def _push(mode: Any) -> None:
    torch_internals.push_dispatch_mode(mode)


def _look_at_stack() -> None:
    """Compiled code is run under no mode but torch's own: tell the guards of this thread."""
    tell, any_mode = torch_internals.tell_dynamo, torch_internals.any_dispatch_mode
    if tell is not None and any_mode is not None:
        tell(any_mode())
