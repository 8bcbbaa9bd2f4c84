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


def test_a_factory_in_forward_gets_the_partners_device():
    (found,) = findings(fault(operand("x"), operand("h", CPU, **BORN_HERE)))
    assert (found.kind, found.severity, found.module) == ("wrong-device", "error", "block")
    assert found.birth.line == 19
    assert found.fault.line == 20
    assert found.fixes[0].code == "h = torch.zeros(2, 3, device=x.device)"
    assert not found.fixes[0].verified  # nobody has run it
    assert found.fixes[1].code == "h = h.to(x.device)"


def test_a_batch_made_elsewhere_is_moved_before_the_call():
    made = {**BORN_HERE, "birth": site("h = torch.randn(2, 3)", 3, "build"), "birth_call": "torch.randn(2, 3)",
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
    assert found.headline == "`pack_padded_sequence` was given a tensor on cuda:0 where it needs one on cpu"
    assert "lengths = lengths.cpu()" in {fix.code for fix in found.fixes}


@pytest.mark.parametrize("crossings", [(), chain(CPU, GPU0), chain(GPU0, GPU1)])
def test_tensors_that_are_where_they_should_be_stay_silent(crossings):
    assert is_silent(KIND, fault(operand("x"), operand("scale", CPU, shape=())), crossings=crossings)


def test_after_the_fix_the_tensor_made_beside_its_partner_is_silent():
    made = dataclasses.replace(operand("h", GPU0, **BORN_HERE), stray=False)
    assert is_silent(KIND, fault(operand("x"), made))


def test_a_fault_that_was_not_healed_is_not_called_verified():
    (found,) = findings(fault(operand("x", GPU0), operand("h", CPU, **BORN_HERE), healed=False))
    assert not found.fixes[0].verified


def test_a_model_that_was_never_moved_is_one_finding():
    def layer(name, number, line):
        held = Held(name, "weight", "parameter", "Linear", left_behind="")
        birth = site(f"self.{name} = nn.Linear(3, 2)", line, "__init__")
        return fault(operand("x"), operand("weight", CPU, stray=True, birth=birth, held=held), module=name, number=number)

    (found,) = findings(layer("enter", 0, 4), layer("leave", 1, 5))
    assert (found.module, found.also) == ("enter", ("leave",))
    assert "the whole model is on cpu" in found.notes[0]


def test_a_parameter_alone_is_not_the_whole_model():
    held = Held("", "scale", "parameter", "Net", left_behind=None)
    scale = operand("self.scale", CPU, stray=True, birth=site("self.scale = nn.Parameter(ones)", 4, "__init__"), held=held)
    (found,) = findings(fault(operand("x"), scale, site=site("y = x * self.scale", 20)))
    assert found.notes[0] == "`scale` is on cpu; the others are on cuda:0"
    assert found.fixes[0].code == "y = x * self.scale.to(x.device)"
    assert not any("model" in fix.code for fix in found.fixes)


def test_what_is_made_in_the_failing_line_is_not_moved_after_it():
    made = {**BORN_HERE, "birth": site("z = x + torch.randn(3) * s", 20), "birth_call": "torch.randn(3)", "birth_op": "randn"}
    (found,) = findings(fault(operand("x"), operand("", CPU, **made), site=site("z = x + torch.randn(3) * s", 20)))
    assert not any(fix.code.endswith(").to('cuda:0')") for fix in found.fixes)


def test_parameters_are_not_moved_to_a_stray_layer():
    held = Held("a", "weight", "parameter", "Linear", left_behind="a")
    stray = operand("h", GPU0, stray=True, held=held)
    own = operand("self.b.weight", GPU1)
    (found,) = findings(fault(stray, own, target=GPU1))
    assert not any("self.b.weight =" in fix.code for fix in found.fixes)
