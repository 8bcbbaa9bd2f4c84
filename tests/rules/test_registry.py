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


def test_the_folder_is_the_list():
    assert {"wrong-device", "unregistered-tensor", "invalid-device", "parallel-misplaced"} <= {r.kind for r in all_rules()}
