"""Undo: steps that put back what was put in, all of which are run, whatever strikes any of them."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from devwidget.capture.interrupts import sure_exit
from devwidget.records.errors import error_text

_T = TypeVar("_T")
Step = Callable[[], object]


class Undo:
    """Steps, the last one run first; a `with` block that runs them at its end.

    A step is added before that is done which it undoes, and stays until it has run: what cuts a step short, with the
    memory full or in any other way, has it run again. So a step must bear to be run twice, and with nothing to undo.
    """

    inside = False

    def __init__(self) -> None:
        self._steps: list[functools.partial[object]] = []
        self._gathered: list[Any] | None = None

    def add_step(self, step: Callable[..., object], *args: Any) -> None:
        """What is done next is undone by `step(*args)`."""
        self._steps.append(functools.partial(step, *args))

    def enter_context(self, context: contextlib.AbstractContextManager[_T]) -> _T:
        """Enter a context, and leave it in the end; its `__exit__`, or `leave_all`, bears what a step must.

        While contexts gather, one that has `enter_all` and `leave_all` only waits.
        """
        if self._gathered is not None and hasattr(context, "enter_all"):
            self._gathered.append(context)
            return cast(_T, context)
        self.add_step(_leave_context, context)
        return context.__enter__()

    def gather_contexts(self) -> None:
        """Queue contexts of one class, so that `enter_gathered` can enter them at once."""
        self._gathered = []

    def enter_gathered(self) -> None:
        """Enter what has waited, all at once; it is left all at once too."""
        gathered, self._gathered = self._gathered, None
        if gathered:
            self.add_step(gathered[0].leave_all, gathered)
            gathered[0].enter_all(gathered)

    def run_steps(self) -> None:
        """Undo everything; called again, undo what is left.

        Raises:
            BaseException: the first that a step has raised, with the others as notes.
        """
        with self:
            pass

    def __enter__(self) -> Undo:
        self.inside = True
        return self

    @sure_exit
    def __exit__(self, *exc_info: object) -> None:
        errors: list[BaseException] = []
        while self._steps:
            last = len(self._steps) - 1  # a thread that goes on may add some meanwhile
            _attempt_step(self._steps[last], errors)
            del self._steps[last]
        for error in errors[1:]:
            errors[0].add_note(f"and while it was put back: {error_text(error)}")
        if errors:
            raise errors[0]


def _leave_context(context: contextlib.AbstractContextManager[Any]) -> None:
    context.__exit__(None, None, None)


def _attempt_step(step: Step, errors: list[BaseException]) -> None:
    """Run a step, and again if it was cut short."""
    for _ in range(2):
        try:
            step()
        except BaseException as error:  # raised again when all steps have been run
            errors.append(error)
        else:
            return


@contextlib.contextmanager
def paused_gc() -> Iterator[None]:
    """Switch Python's collector off for the duration, unless the user has it off already."""
    with Undo() as undo:
        # In this order: an interrupt between the two leaves the collector on, never off.
        if gc.isenabled():
            undo.add_step(gc.enable)
            gc.disable()
        yield
