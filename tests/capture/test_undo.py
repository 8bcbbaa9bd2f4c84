"""Undo: every step runs, the last first, and what strikes one of them is raised in the end."""

from __future__ import annotations

import contextlib

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
        undo.add(ran.append, name)
    undo.run()
    undo.run()
    assert ran == ["c", "b", "a"]


def test_a_step_that_fails_keeps_none_from_running_and_the_first_error_has_the_others_as_notes():
    ran, undo = [], Undo()
    undo.add(ran.append, "below")
    undo.add(failing(ValueError("second")))
    undo.add(failing(KeyError("first")))
    with pytest.raises(KeyError, match="first") as caught:
        undo.run()
    assert ran == ["below"]
    assert any("ValueError: second" in note for note in caught.value.__notes__)


def test_a_step_that_was_cut_short_once_runs_again():
    ran, undo = [], Undo()

    def step():
        ran.append(len(ran))
        if len(ran) == 1:
            raise KeyboardInterrupt

    undo.add(step)
    with pytest.raises(KeyboardInterrupt):
        undo.run()
    assert ran == [0, 1]


def test_a_context_is_left_even_if_its_entry_fails():
    left = []

    class Context:
        def __enter__(self):
            raise MemoryError

        def __exit__(self, *exc_info):
            left.append(self)

    with pytest.raises(MemoryError), Undo() as undo:
        undo.enter(Context())
    assert len(left) == 1


def test_a_block_runs_its_steps_whatever_line_of_ours_is_struck():
    def block():
        with Undo() as undo:
            for name in "abc":
                undo.add(ran.append, name)
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
    """Left with its neighbours."""

    def __init__(self, left):
        self.left = left

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        raise AssertionError("left alone")

    @staticmethod
    def leave_all(contexts):
        contexts[0].left.append(contexts[::-1])


def test_neighbours_that_are_left_together_share_a_step_while_it_gathers():
    left, undo = [], Undo()
    one, two, three, four, five = (Together(left) for _ in range(5))
    undo.gathers = True
    undo.enter(one)
    undo.enter(two)
    undo.add(left.append, "between")
    undo.enter(three)
    undo.gathers = False
    undo.enter(four)
    undo.enter(five)
    undo.run()
    assert left == [[five], [four], [three], "between", [two, one]]
