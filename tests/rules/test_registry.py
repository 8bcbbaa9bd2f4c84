"""Running the rules: crashes, order, and what a rule lacks."""

import pathlib

import pytest

from devwidget.records.finding import Finding
from devwidget.records.trace import Trace
from devwidget.rules.registry import Rule, all_rules, judge
from tests.rules.builders import step


def broken(trace):
    raise KeyError("oops")
    yield


def warns(trace):
    yield Finding("soft", "warning", "a", "h", "w")


def fails(trace):
    yield Finding("hard", "error", "b", "h", "w")


SILENT = {"mixed-dtensor", "slow-loader"}
"""Few programs have what they need."""


def test_a_rule_that_crashes_is_shown_and_the_others_go_on():
    trace = judge(Trace(), [Rule("broken", broken, (), ()), Rule("hard", fails, (), ())])
    assert [f.kind for f in trace.findings] == ["hard"]
    assert trace.not_checked == ("broken: the rule itself failed with KeyError: 'oops'",)


def test_an_empty_recording_checks_nothing():
    trace = judge(Trace())
    assert trace.checked == ()
    assert [text.partition(": no ")[0] for text in trace.not_checked] == [
        each.kind for each in all_rules() if each.kind not in SILENT
    ]


def test_a_forward_pass_alone_says_which_rules_had_no_backward_pass():
    forward = tuple(op for op in step().ops if op.phase == "forward")
    lacking = dict(text.split(": ", 1) for text in judge(step(ops=forward, parallel=(), phases=("forward",))).not_checked)
    assert lacking == {
        "non-leaf-grad": "no backward pass in this trace",
        "optimizer-misplaced": "no backward pass and no optimizer step in this trace",
        "parallel-io": "no DataParallel call in this trace",
        "parallel-misplaced": "no DataParallel call in this trace",
        "replica-state-lost": "no DataParallel call in this trace",
    }


def test_a_part_of_the_step_in_which_no_operator_was_seen_has_run():
    judged = judge(Trace(phases=("forward", "backward", "optimizer")))
    assert "optimizer-misplaced" in judged.checked
    assert not any("backward" in text or "optimizer" in text or "forward" in text for text in judged.not_checked)


def test_every_rule_looks_at_a_whole_step_with_nothing_wrong_and_finds_nothing():
    judged = judge(step())
    assert judged.findings == ()
    assert (len(judged.checked), judged.not_checked) == (len(all_rules()) - len(SILENT), ())


def test_the_worst_comes_first():
    trace = judge(Trace(), [Rule("soft", warns, (), ()), Rule("hard", fails, (), ())])
    assert [f.severity for f in trace.findings] == ["error", "warning"]


@pytest.mark.parametrize("kind", [each.kind for each in all_rules()])
def test_every_rule_has_a_test_file_and_shows_its_text(kind):
    folder = pathlib.Path(__file__).parent
    assert (folder / f"test_{kind.replace('-', '_')}.py").exists()
    assert (folder / "golden" / f"{kind}.txt").read_text(encoding="utf-8").partition(" ")[0].endswith(f"[{kind}]")
