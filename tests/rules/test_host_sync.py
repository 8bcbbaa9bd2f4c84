"""host-sync: lines at which the host waits for a GPU."""

import pytest

from tests.rules.builders import CPU, fault, findings, is_silent, operand, site, wait

KIND = "host-sync"


def test_a_number_read_in_forward_is_one_finding(golden):
    (found,) = findings(waits=(wait(count=3),))
    golden(f"{KIND}.txt", found)


@pytest.mark.parametrize(
    ("call", "cure"),
    [("numpy", "stay on the GPU"), ("__bool__", "torch.where or a mask, without an `if`"), ("tolist", "without .item()")],
)
def test_the_cure_depends_on_what_waits(call, cure):
    (found,) = findings(waits=(wait(call=call, expression=""),))
    assert f"at `{call.strip('_')}`, 1 time" in found.headline
    assert cure in found.fixes[0].summary


def test_a_wait_in_library_code_is_only_worth_a_note():
    (found,) = findings(waits=(wait(library=True),))
    assert found.severity == "info"


def test_two_waits_of_one_line_are_one_finding():
    assert len(findings(waits=(wait(), wait(call="__bool__")))) == 1


def test_a_wait_that_is_allowed_stays_silent():
    assert is_silent(KIND, waits=(wait(meant="the loss is logged"),))


def test_a_line_that_has_failed_is_not_told_twice():
    line = site("if loss.item() > 1:", 12)
    found = findings(fault(operand("x"), operand("loss", CPU, stray=True), site=line), waits=(wait(site=line),))
    assert [each.kind for each in found] == ["wrong-device"]


def test_after_the_fix_the_rule_looks_and_finds_nothing():
    assert is_silent(KIND, waits=())
