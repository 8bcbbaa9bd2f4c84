"""Undo: every step runs, the last first, and what strikes one of them is raised in the end."""

from __future__ import annotations

import contextlib
from typing import ClassVar

import pytest

from devwidget.capture.undo import Undo
from tests import faults


def failing(error):
    def step():
        raise error

    return step


def test_steps_run_the_last_first_and_once():
    ran, undo = [], Undo()
    for name in "abc":
        undo.add_step(ran.append, name)
    undo.run_steps()
    undo.run_steps()
    assert ran == ["c", "b", "a"]


def test_a_step_that_fails_keeps_none_from_running_and_the_first_error_has_the_others_as_notes():
    ran, undo = [], Undo()
    undo.add_step(ran.append, "below")
    undo.add_step(failing(ValueError("second")))
    undo.add_step(failing(KeyError("first")))
    with pytest.raises(KeyError, match="first") as caught:
        undo.run_steps()
    assert ran == ["below"]
    assert any("ValueError: second" in note for note in caught.value.__notes__)


def test_a_step_that_was_cut_short_once_runs_again():
    ran, undo = [], Undo()

    def step():
        ran.append(len(ran))
        if len(ran) == 1:
            raise KeyboardInterrupt

    undo.add_step(step)
    with pytest.raises(KeyboardInterrupt):
        undo.run_steps()
    assert ran == [0, 1]


def test_a_context_is_left_even_if_its_entry_fails():
    left = []

    class Context:
        def __enter__(self):
            raise MemoryError

        def __exit__(self, *exc_info):
            left.append(self)

    with pytest.raises(MemoryError), Undo() as undo:
        undo.enter_context(Context())
    assert len(left) == 1


def test_a_block_runs_its_steps_whatever_line_of_ours_is_struck():
    def block():
        with Undo() as undo:
            for name in "abc":
                undo.add_step(ran.append, name)
                begun.append(name)

    begun, ran = [], []
    with faults.LinesRun() as lines:
        block()
    for line, count in lines.counts.items():
        for nth in range(1, count + 1):
            begun, ran = [], []
            with contextlib.suppress(faults.Fault), faults.RaiseAt(line, nth):
                block()
            assert set(begun) <= set(ran), (line, nth)


class Together:
    """Entered and left with others."""

    log: ClassVar[list[object]] = []

    def __enter__(self):
        self.enter_all([self])
        return self

    def __exit__(self, *exc_info):
        self.leave_all([self])

    @classmethod
    def enter_all(cls, contexts):
        cls.log.append(("in", contexts[:]))

    @classmethod
    def leave_all(cls, contexts):
        cls.log.append(("out", contexts[::-1]))


def test_contexts_that_have_gathered_are_entered_and_left_all_at_once():
    undo, log = Undo(), Together.log
    log.clear()
    one, two, three = (Together() for _ in range(3))
    undo.gather_contexts()
    undo.enter_context(one)
    undo.add_step(log.append, "between")
    undo.enter_context(two)
    assert log == []
    undo.enter_gathered()
    undo.enter_context(three)
    undo.run_steps()
    assert log == [("in", [one, two]), ("in", [three]), ("out", [three]), ("out", [two, one]), "between"]
