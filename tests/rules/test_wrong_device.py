"""wrong-device: operations on tensors that it cannot mix."""

import dataclasses

import pytest

from devwidget.records.trace import Held
from tests.rules.builders import CPU, GPU0, GPU1, chain, fault, findings, is_silent, operand, site

KIND = "wrong-device"

BORN_HERE = {
    "stray": True, "birth": site("h = torch.zeros(2, 3)", 19), "birth_call": "torch.zeros(2, 3)", "birth_op": "zeros",
    "birth_direct": True, "birth_partner": "x",
}  # fmt: skip


def test_a_tensor_made_in_forward_is_one_finding(golden):
    (found,) = findings(fault(operand("x"), operand("h", CPU, **BORN_HERE)))
    golden(f"{KIND}.txt", found)


def test_a_batch_made_elsewhere_is_moved_before_the_call():
    made = {**BORN_HERE, "birth": site("h = torch.randn(2, 3)", 2, "build"), "birth_call": "torch.randn(2, 3)",
            "birth_op": "randn", "birth_partner": ""}  # fmt: skip
    (found,) = findings(fault(operand("weight"), operand("h", CPU, **made)))
    assert found.fixes[0].code == "h = torch.randn(2, 3, device='cuda:0')"
    assert any(fix.code == "h = h.to(weight.device)" for fix in found.fixes)


def test_a_layer_left_behind_moves_the_model_not_the_data():
    held = Held("head", "weight", "parameter", "Linear", left_behind="head")
    weight = operand("weight", CPU, stray=True, birth=site("self.head = nn.Linear(3, 2)", 4, "__init__"), held=held)
    (found,) = findings(fault(operand("x"), weight, module="head"))
    assert found.fixes[0].code == "model.to('cuda:0')"
    assert "`head.weight` is on cpu" in found.notes[0]


def test_one_cause_that_strikes_twice_is_one_finding():
    first = fault(operand("x"), operand("h", CPU, **BORN_HERE), number=0)
    second = fault(operand("x"), operand("h", CPU, **BORN_HERE), number=1, module="other", site=site("z = x * h", 30))
    (found,) = findings(first, second)
    assert found.also == ("other",)
    assert found.explains == (0, 1)
    assert "train.py:30" in found.notes[-1]


def test_two_causes_are_two_findings():
    other = {**BORN_HERE, "birth": site("k = torch.ones(2, 3)", 25)}
    faults = fault(operand("x"), operand("h", CPU, **BORN_HERE)), fault(operand("x"), operand("k", GPU1, **other), number=1)
    assert len(findings(*faults)) == 2


def test_an_operator_that_wants_a_tensor_elsewhere_says_where():
    lengths = operand("lengths", GPU0, stray=True, birth=site("lengths = x.new_tensor([2, 3])", 6))
    (found,) = findings(fault(lengths, call="pack_padded_sequence", target=CPU))
    assert found.headline == "`pack_padded_sequence` got a tensor on cuda:0 but requires one on cpu"
    assert "lengths = lengths.cpu()" in {fix.code for fix in found.fixes}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"phase": "optimizer"},
        {"phase": "loss", "module": None},
        {"call": "DataParallel.forward"},
        {"call": "histogram"},
    ],
)
def test_tensors_that_do_not_mix_are_no_other_kind_wherever_they_meet(more):
    assert [each.kind for each in findings(fault(operand("x"), operand("h", CPU, stray=True), **more))] == [KIND]


@pytest.mark.parametrize("how", ["global", "closure", "batch"])
def test_what_no_module_keeps_is_no_other_kind(how):
    stray = operand("RARE", CPU, stray=True, held=Held(None, "RARE", how))
    assert [each.kind for each in findings(fault(operand("x"), stray))] == [KIND]


@pytest.mark.parametrize("crossings", [(), chain(CPU, GPU0), chain(GPU0, GPU1)])
def test_tensors_that_are_where_they_should_be_stay_silent(crossings):
    assert is_silent(KIND, fault(operand("x"), operand("scale", CPU, shape=())), crossings=crossings)


def test_after_the_fix_the_tensor_made_beside_its_partner_is_silent():
    made = dataclasses.replace(operand("h", GPU0, **BORN_HERE), stray=False)
    assert is_silent(KIND, fault(operand("x"), made))


def test_a_model_that_was_never_moved_is_one_finding():
    def layer(name, number, line):
        held = Held(name, "weight", "parameter", "Linear", left_behind="")
        birth = site(f"self.{name} = nn.Linear(3, 2)", line, "__init__")
        return fault(operand("x"), operand("weight", CPU, stray=True, birth=birth, held=held), module=name, number=number)

    (found,) = findings(layer("enter", 0, 4), layer("leave", 1, 5))
    assert (found.module, found.also) == ("enter", ("leave",))
    assert "the whole model is on cpu" in found.notes[0]
