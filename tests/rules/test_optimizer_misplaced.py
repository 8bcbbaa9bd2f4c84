"""optimizer-misplaced: state that stayed behind, and parameters that the optimizer was never given."""

import dataclasses

import pytest

from devwidget.records.trace import FaultDetails
from tests.rules.builders import CPU, fault, findings, operand, site

KIND = "optimizer-misplaced"
STEP = site("optimizer.step()", 30, "train")
SUM = operand("state['sum']", CPU, expression="", stray=True)


def state_left_behind(**more):
    details = FaultDetails(problem="state", state="sum", optimizer="Adagrad")
    built = site("optimizer = torch.optim.Adagrad(model.parameters())", 6, "train")
    return fault(SUM, what="optimizer", call="step", module=None, phase="optimizer", site=STEP, birth=built, details=details,
                 **more)  # fmt: skip


def never_given(reason):
    details = FaultDetails(problem="missing", optimizer="Adam", reason=reason)
    built = site("optimizer = torch.optim.Adam(model.parameters())", 6, "train")
    late = operand("head.weight"), operand("head.bias")
    return fault(*late, what="optimizer", call="step", module=None, phase="optimizer", site=STEP, birth=built, details=details,
                 error="")  # fmt: skip


def test_state_that_was_made_before_the_move_is_one_finding(golden):
    (found,) = findings(state_left_behind())
    golden(f"{KIND}.txt", found)


@pytest.mark.parametrize("reason", ["younger", "frozen"])
def test_parameters_that_the_optimizer_was_not_given_are_one_finding(golden, reason):
    (found,) = findings(never_given(reason))
    golden(f"{KIND}-{reason}.txt", found)


def test_the_kernel_that_stopped_at_the_state_tells_nothing_of_its_own():
    lists = operand("input[0]", CPU, expression="", stray=True), operand("tensor1[0]", expression="")
    kernel = fault(*lists, call="_foreach_addcmul_", module=None, phase="optimizer", site=STEP, number=1)
    (found,) = findings(state_left_behind(number=0), kernel)
    assert (found.kind, found.explains) == (KIND, (0, 1))
    other = dataclasses.replace(kernel, operands=(dataclasses.replace(lists[0], shape=(5, 5)), lists[1]))
    assert {each.kind for each in findings(state_left_behind(number=0), other)} == {KIND, "wrong-device"}


def test_two_problems_of_one_optimizer_are_two_findings():
    assert len(findings(state_left_behind(number=0), dataclasses.replace(never_given("younger"), number=1))) == 2
