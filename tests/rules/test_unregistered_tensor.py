"""unregistered-tensor: what a module keeps where `.to()` does not reach."""

import dataclasses

import pytest

from devwidget.records.trace import Held
from tests.rules.builders import CPU, GPU0, GPU1, attribute, fault, findings, is_silent, operand, site

KIND = "unregistered-tensor"


def kept(name, statement, expression="h", **more):
    birth = site(statement, 5, "__init__")
    return operand(expression, CPU, stray=True, birth=birth, held=attribute(name, statement), **more)


def test_a_plain_attribute_becomes_a_buffer(golden):
    mask = kept("mask", "self.mask = torch.tril(torch.ones(8, 8)).bool()", "self.mask")
    (found,) = findings(fault(operand("x"), mask))
    golden(f"{KIND}.txt", found)


def test_it_stayed_only_where_the_model_went_as_a_whole():
    part = site("self.head = nn.Linear(8, 2).to('cuda:0')", 4, "__init__")
    whole = site("self.to('cuda:0')", 4, "__init__")
    scale = kept("scale", "self.scale = torch.ones(3)", "self.scale")
    headlines = []
    for went, devices in ((part, (GPU0,)), (None, (GPU0,)), (part, (GPU0, GPU1)), (whole, (GPU0,))):
        held = dataclasses.replace(scale.held, went=went, model_devices=devices)
        (found,) = findings(fault(operand("x"), dataclasses.replace(scale, held=held)))
        headlines.append(found.headline)
    assert headlines == [
        "`block.scale` is on cpu, and the model is on cuda:0",
        "`block.scale` is on cpu, and the model is on cuda:0",
        "`block.scale` is on cpu; the model has parameters or buffers on cuda:0",
        "`block.scale` stayed on cpu when the model was moved to cuda:0",
    ]


def test_it_wins_over_wrong_device_for_the_same_fault():
    assert [each.kind for each in findings(fault(operand("x"), kept("mask", "self.mask = torch.ones(3)")))] == [KIND]


@pytest.mark.parametrize(
    ("value", "birth"),
    [
        ("mean.clone().detach().view(-1, 1, 1)", "mean = torch.tensor([0.5, 0.4, 0.4])"),
        ("mean * 2", "self.mean = mean * 2"),
        ("torch.ones(3).view(-1, 1)", "self.mean = torch.ones(3).view(-1, 1)"),
    ],
)
def test_what_was_only_shaped_was_placed_where_it_was_made_and_what_was_computed_here(value, birth):
    made = site("mean = torch.tensor([0.5, 0.4, 0.4])", 30, "<module>")
    stray = operand("self.mean", CPU, stray=True, birth=made, held=attribute("mean", f"self.mean = {value}"))
    (found,) = findings(fault(operand("x"), stray))
    assert found.birth.text == birth


def test_a_list_of_layers_becomes_a_module_list(golden):
    statement = "self.layers = [nn.Linear(2, 2) for _ in range(3)]"
    (found,) = findings(fault(operand("x"), kept("layers[0].weight", statement, "weight")))
    golden(f"{KIND}-layers.txt", found)


def test_a_tensor_in_an_object_is_moved():
    (inside,) = findings(fault(operand("x"), kept("grid.centres", "self.grid = Grid()")))
    assert inside.fixes[0].code == "h = h.to(x.device)"


def test_layers_that_no_optimizer_reaches_are_one_finding(golden):
    weight = dataclasses.replace(kept("layers[0].weight", "self.layers = [nn.Linear(2, 2)]", "weight"), device=GPU0)
    (found,) = findings(fault(weight, what="untrained", call="step", phase="optimizer", error="", healed=False))
    golden(f"{KIND}-untrained.txt", found)


def test_after_the_fix_a_buffer_beside_its_input_is_silent():
    mask = operand("self.mask", held=Held("block", "mask", "buffer", "Block"))
    assert is_silent(KIND, fault(operand("x"), mask))
