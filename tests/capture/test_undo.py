"""Undo: every step runs, the last first, and what strikes one of them is raised in the end."""

from __future__ import annotations

import pytest

from devwidget.capture.undo import Undo


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
