"""host-sync: lines that sync with a GPU."""

import pytest

from tests.rules.builders import CPU, fault, findings, is_silent, operand, site, wait

KIND = "host-sync"


def test_a_number_read_in_forward_is_one_finding(golden):
    (found,) = findings(waits=(wait(count=3),))
    golden(f"{KIND}.txt", found)


@pytest.mark.parametrize(
    ("call", "expression", "fix"),
    [
        ("numpy", "", "stay on the GPU"),
        ("__bool__", "", "use torch.where, a mask"),
        ("__getitem__", "x[:, mask]", "keep the size"),
        ("__getitem__", "x[:length]", "select on the GPU"),
    ],
)
def test_the_fix_depends_on_the_call_that_syncs(call, expression, fix):
    (found,) = findings(waits=(wait(call=call, expression=expression, site=site(f"y = f({expression})", 12)),))
    assert fix in found.fixes[0].summary


def test_two_waits_of_one_line_are_one_finding():
    assert len(findings(waits=(wait(), wait(call="__bool__")))) == 1


def test_a_wait_that_is_allowed_stays_silent():
    assert is_silent(KIND, waits=(wait(meant="the loss is logged"),))


def test_a_line_that_has_failed_is_not_reported_twice():
    line = site("if loss.item() > 1:", 12)
    found = findings(fault(operand("x"), operand("loss", CPU, stray=True), site=line), waits=(wait(site=line),))
    assert [each.kind for each in found] == ["wrong-device"]


LOG = {"site": site("total += loss.item()", 20, "train"), "phase": "other", "in_step": False, "module": None}


def severities(steps, *waits):
    return [found.severity for found in findings(waits=waits, steps=steps)]


def test_one_sync_at_each_step_of_the_loop_is_a_hint_with_a_fix():
    (found,) = findings(waits=(wait(**LOG, count=10, turns=10),), steps=10)
    assert (found.severity, "10 times in 10 steps" in found.headline) == ("info", True)
    assert "read them once per epoch" in found.fixes[0].summary


def test_many_waits_at_each_step_of_the_loop_are_a_warning_that_says_how_many():
    (found,) = findings(waits=(wait(**LOG, count=640, turns=10),), steps=10)
    assert found.severity == "warning"
    assert found.notes[0].startswith("about 64 syncs in a row")


@pytest.mark.parametrize(("count", "turns"), [(64, 1), (5, 5)])
def test_what_is_read_when_all_is_over_or_every_few_steps_stays_silent(count, turns):
    assert severities(10, wait(**LOG, count=count, turns=turns)) == []


def test_what_an_environment_is_given_stays_silent():
    line = site("observed = env.step(actions.cpu().numpy())", 20, "train")
    read = wait(**{**LOG, "site": line}, call="numpy", expression="actions.cpu().numpy()", count=10, turns=10)
    assert severities(10, read) == []


@pytest.mark.parametrize("call", ["cpu", "multinomial"])
def test_syncs_without_a_fix_stay_silent(call):
    assert severities(3, wait(call=call, count=3, turns=3)) == []


def test_a_log_inside_the_model_is_a_hint_and_a_number_that_it_needs_a_warning():
    keeps = wait(site=site("self.seen = loss.item()", 12), count=3, turns=3)
    named = wait(site=site("setattr(self, name, loss.item())", 12), count=3, turns=3)
    needs = wait(site=site("return x * loss.item()", 12), count=3, turns=3)
    assert [severities(3, each) for each in (keeps, named, needs)] == [["info"], ["info"], ["warning"]]


@pytest.mark.parametrize(("phase", "told"), [("forward", ["info"]), ("optimizer", []), ("backward", [])])
def test_a_library_that_syncs_is_a_hint_only_in_forward(phase, told):
    assert severities(3, wait(library=True, phase=phase, count=3, turns=3)) == told


@pytest.mark.parametrize(("count", "told"), [(3, ["info"]), (12, ["warning"])])
def test_an_optimizer_that_syncs_once_in_a_step_is_a_hint_and_for_each_parameter_a_warning(count, told):
    assert severities(3, wait(phase="optimizer", module=None, count=count, turns=3)) == told


def test_a_warning_without_an_edit_says_why_there_is_none():
    branch = wait(site=site("if torch.isnan(y).any(): pass", 20), expression="torch.isnan(y).any()", call="__bool__")
    (found,) = findings(waits=(branch,), steps=3)
    assert "the branch must become" in found.notes[-1]
