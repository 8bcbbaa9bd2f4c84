"""Undo steps that are all run, even if some of them fail."""

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
    """Undo steps, the last one run first; a `with` block runs them at its end.

    A step is added before the change that it undoes, so it must work if nothing was changed.
    """

    def __init__(self) -> None:
        self._steps: list[functools.partial[object]] = []

    def add_step(self, step: Callable[..., object], *args: Any) -> None:
        """Add `step(*args)`, which undoes the next change."""
        self._steps.append(functools.partial(step, *args))

    def enter_context(self, context: contextlib.AbstractContextManager[_T]) -> _T:
        """Enter a context, and leave it at the end. Its `__exit__` must work if nothing was changed."""
        self.add_step(context.__exit__, None, None, None)
        return context.__enter__()

    def run_steps(self) -> None:
        """Undo everything; a second call undoes the rest.

        Raises:
            BaseException: the first exception of a step, with the others as notes.
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
    """Switch garbage collection off in the block, unless it is already off."""
    if not gc.isenabled():
        yield
        return
    try:
        gc.disable()
        yield
    finally:
        gc.enable()
