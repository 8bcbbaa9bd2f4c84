"""Undo: steps that put back what was put in, all of which are run, whatever strikes any of them."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from devwidget.capture.interrupts import uninterrupted
from devwidget.records.errors import error_text

_T = TypeVar("_T")


class Undo:
    """Steps, the last one run first; a `with` block that runs them at its end.

    A step is added before that is done which it undoes, so it must bear that there is nothing to undo.
    """

    def __init__(self) -> None:
        self._steps: list[functools.partial[object]] = []

    def add_step(self, step: Callable[..., object], *args: Any) -> None:
        """What is done next is undone by `step(*args)`."""
        self._steps.append(functools.partial(step, *args))

    def enter_context(self, context: contextlib.AbstractContextManager[_T]) -> _T:
        """Enter a context, and leave it in the end; its `__exit__` bears what a step must."""
        self.add_step(context.__exit__, None, None, None)
        return context.__enter__()

    def run_steps(self) -> None:
        """Undo everything; called again, undo what is left.

        Raises:
            BaseException: the first that a step has raised, with the others as notes.
        """
        with uninterrupted():
            errors = self._run_all()
        for other in errors[1:]:
            errors[0].add_note(f"and while it was put back: {error_text(other)}")
        if errors:
            raise errors[0]

    def _run_all(self) -> list[BaseException]:
        errors: list[BaseException] = []
        while self._steps:
            step = self._steps.pop()
            try:
                step()
            except BaseException as error:  # raised again when all steps have been run
                errors.append(error)
        return errors

    def __enter__(self) -> Undo:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.run_steps()


@contextlib.contextmanager
def paused_gc() -> Iterator[None]:
    """Switch Python's collector off for the duration, unless the user has it off already."""
    if not gc.isenabled():
        yield
        return
    try:
        gc.disable()
        yield
    finally:
        gc.enable()
