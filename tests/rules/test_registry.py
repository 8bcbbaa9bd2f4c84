"""Running the rules: crashes, order, and what a rule lacks."""

import pathlib

import pytest

from devwidget.records.finding import Finding
from devwidget.records.trace import Trace
from devwidget.rules._registry import Rule, all_rules, judge


def broken(trace):
    raise KeyError("oops")
    yield


def warns(trace):
    yield Finding("soft", "warning", "a", "h", "w")


def fails(trace):
    yield Finding("hard", "error", "b", "h", "w")


def test_a_rule_that_crashes_is_shown_and_the_others_go_on():
    trace = judge(Trace(), [Rule("broken", broken, (), ()), Rule("hard", fails, (), ())])
    assert [f.kind for f in trace.findings] == ["hard"]
    assert trace.not_checked == ("broken: the rule itself failed with KeyError: 'oops'",)


def test_a_rule_says_what_it_lacks():
    trace = judge(Trace(), [Rule("hard", fails, ("moves", "replicas"), ())])
    assert trace.not_checked == ("hard: no moves and no replicas in this trace",)


def test_the_worst_comes_first():
    trace = judge(Trace(), [Rule("soft", warns, (), ()), Rule("hard", fails, (), ())])
    assert [f.severity for f in trace.findings] == ["error", "warning"]


@pytest.mark.parametrize("kind", [each.kind for each in all_rules()])
def test_every_rule_has_a_test_file_and_shows_its_text(kind):
    folder = pathlib.Path(__file__).parent
    assert (folder / f"test_{kind.replace('-', '_')}.py").exists()
    assert (folder / "golden" / f"{kind}.txt").read_text(encoding="utf-8").partition(" ")[0].endswith(f"[{kind}]")


def test_the_folder_is_the_list():
    assert {"wrong-device", "unregistered-tensor", "invalid-device", "parallel-misplaced"} <= {r.kind for r in all_rules()}
