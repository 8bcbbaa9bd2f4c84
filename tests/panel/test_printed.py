"""While the panel traces no cell runs: prints are collected, questions are refused in words."""

import builtins

import pytest

from devwidget.panel.questions import collect_printed


def test_a_question_is_refused_and_says_where_it_can_be_asked():
    before, shown = builtins.input, []
    with collect_printed(shown.append):
        print("asking")
        with pytest.raises(EOFError, match=r"run `panel.run_trace\(\)` in a cell"):
            input("how many? ")
    assert shown == ["", "asking\n"]
    assert builtins.input is before
