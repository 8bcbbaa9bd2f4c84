"""Undo: steps that put back what was put in, all of which are run, whatever strikes any of them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar

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
    gathers = False
    """Whether contexts that are left all at once share a step: not while another thread may add one to a step that runs."""

    def __init__(self) -> None:
        self._steps: list[functools.partial[object]] = []

    def add(self, step: Callable[..., object], *args: Any) -> None:
        """What is done next is undone by `step(*args)`."""
        self._steps.append(functools.partial(step, *args))

    def enter(self, context: contextlib.AbstractContextManager[_T]) -> _T:
        """Enter a context, and leave it in the end; its `__exit__`, or `leave_all`, bears what a step must."""
        leave_all: Callable[[list[Any]], object] | None = getattr(context, "leave_all", None)
        if leave_all is None:
            self.add(_leave, context)
        elif self.gathers and self._steps and self._steps[-1].func is leave_all:
            self._steps[-1].args[0].append(context)
        else:
            self.add(leave_all, [context])
        return context.__enter__()

    def run(self) -> None:
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
            _attempt(self._steps[last], errors)
            del self._steps[last]
        for error in errors[1:]:
            errors[0].add_note(f"and while it was put back: {error_text(error)}")
        if errors:
            raise errors[0]


def _leave(context: contextlib.AbstractContextManager[Any]) -> None:
    context.__exit__(None, None, None)


def _attempt(step: Step, errors: list[BaseException]) -> None:
    """Run a step, and again if it was cut short."""
    for _ in range(2):
        try:
            step()
        except BaseException as error:  # raised again when all steps have been run
            errors.append(error)
        else:
            return
