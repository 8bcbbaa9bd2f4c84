"""optimizer-misplaced: state that stayed behind, and parameters that the optimizer was never given."""

import dataclasses

from devwidget.records.fault_details import MissingParameters, StrayState
from devwidget.records.site import Site
from devwidget.records.trace import Held
from tests.rules.builders import CPU, fault, findings, operand, site

KIND = "optimizer-misplaced"
STEP = site("optimizer.step()", 30, "train")
SUM = operand("state['sum']", CPU, expression="", stray=True)


def state_left_behind(**more):
    detail = StrayState("Adagrad", "sum")
    built = site("optimizer = torch.optim.Adagrad(model.parameters())", 6, "train")
    return fault(SUM, what="optimizer", call="step", module=None, phase="optimizer", site=STEP, birth=built, detail=detail,
                 **more)  # fmt: skip


def never_given():
    detail = MissingParameters("Adam")
    built = site("optimizer = torch.optim.Adam(model.parameters())", 6, "train")
    late = operand("head.weight"), operand("head.bias")
    return fault(*late, what="optimizer", call="step", module=None, phase="optimizer", site=STEP, birth=built, detail=detail,
                 error="")  # fmt: skip


def test_state_that_was_made_before_the_move_is_one_finding(golden):
    (found,) = findings(state_left_behind())
    golden(f"{KIND}.txt", found)


def test_parameters_that_the_optimizer_was_not_given_are_one_finding(golden):
    (found,) = findings(never_given())
    golden(f"{KIND}-missing.txt", found)


def of_another_model(built, made, model="rnn"):
    detail = MissingParameters("SGD", "another model")
    held = Held("", "cell.weight", "parameter", "RNN", built=made)
    return fault(operand("cell.weight", held=held), what="optimizer", call="step", module=None, phase="optimizer", site=STEP,
                 birth=built, detail=detail, error="", model_name=model)  # fmt: skip


def test_an_optimizer_of_a_model_that_was_made_again_is_one_finding(golden):
    built = site("optimizer = torch.optim.SGD(rnn.parameters())", 6, "train")
    (found,) = findings(of_another_model(built, site("rnn = RNN().cuda()", 9, "train")))
    golden(f"{KIND}-another-model.txt", found)


def test_an_optimizer_whose_cell_was_not_run_again_is_built_by_that_cell():
    optimizer_cell, model_cell = "/tmp/ipykernel_7/2.py", "/tmp/ipykernel_7/1.py"
    built = Site(optimizer_cell, 2, "optimizer = torch.optim.SGD(rnn.parameters())", "<module>")
    (found,) = findings(of_another_model(built, Site(model_cell, 1, "rnn = RNN().cuda()", "<module>")))
    assert [(fix.summary, fix.code, fix.edits) for fix in found.fixes] == [
        ("run the optimizer's cell again after the model's cell", built.text, ())
    ]
    assert found.notes[0] == "the model was created at cell:1: rnn = RNN().cuda()"


def test_an_optimizer_without_a_known_line_is_reported():
    (found,) = findings(of_another_model(None, None, model=""))
    assert found.headline == "`SGD` has none of the parameters of the model, which received gradients"
    assert [fix.summary for fix in found.fixes] == ["build the optimizer after the last change of the model"]


def test_the_kernel_that_stopped_at_the_state_tells_nothing_of_its_own():
    lists = operand("input[0]", CPU, expression="", stray=True), operand("tensor1[0]", expression="")
    kernel = fault(*lists, call="_foreach_addcmul_", module=None, phase="optimizer", site=STEP, number=1)
    (found,) = findings(state_left_behind(number=0), kernel)
    assert (found.kind, found.explains) == (KIND, (0, 1))
    other = dataclasses.replace(kernel, operands=(dataclasses.replace(lists[0], shape=(5, 5)), lists[1]))
    assert {each.kind for each in findings(state_left_behind(number=0), other)} == {KIND, "wrong-device"}


def test_two_problems_of_one_optimizer_are_two_findings():
    assert len(findings(state_left_behind(number=0), dataclasses.replace(never_given(), number=1))) == 2
