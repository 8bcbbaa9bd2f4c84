"""unregistered-tensor: what a module keeps where `.to()` does not reach."""

import dataclasses

import pytest

from devwidget.records.trace import Held
from tests.rules.builders import CPU, GPU0, attribute, fault, findings, is_silent, operand, site

KIND = "unregistered-tensor"


def kept(name, statement, expression="h", **more):
    birth = site(statement, 5, "__init__")
    return operand(expression, CPU, stray=True, birth=birth, held=attribute(name, statement), **more)


def test_a_plain_attribute_becomes_a_buffer(golden):
    mask = kept("mask", "self.mask = torch.tril(torch.ones(8, 8)).bool()", "self.mask")
    (found,) = findings(fault(operand("x"), mask))
    golden(f"{KIND}.txt", found)


def test_it_wins_over_wrong_device_for_the_same_fault():
    assert [each.kind for each in findings(fault(operand("x"), kept("mask", "self.mask = torch.ones(3)")))] == [KIND]


@pytest.mark.parametrize("value", ["mean", "mean.clone().detach().view(-1, 1, 1)", "stats.mean.unsqueeze(0)"])
def test_what_was_handed_in_and_shaped_was_placed_where_it_was_made(value):
    made = site("mean = torch.tensor([0.5, 0.4, 0.4])", 30, "<module>")
    stray = operand("self.mean", CPU, stray=True, birth=made, held=attribute("mean", f"self.mean = {value}"))
    (found,) = findings(fault(operand("x"), stray))
    assert found.birth == made


@pytest.mark.parametrize("value", ["mean * 2", "mean.float().cumsum(0)", "torch.ones(3).view(-1, 1)"])
def test_what_was_computed_for_the_attribute_was_placed_there(value):
    made = site("mean = torch.tensor([0.5, 0.4, 0.4])", 30, "<module>")
    stray = operand("self.mean", CPU, stray=True, birth=made, held=attribute("mean", f"self.mean = {value}"))
    (found,) = findings(fault(operand("x"), stray))
    assert found.birth is not None
    assert found.birth.text == f"self.mean = {value}"


def test_a_list_of_layers_becomes_a_module_list(golden):
    statement = "self.layers = [nn.Linear(2, 2) for _ in range(3)]"
    (found,) = findings(fault(operand("x"), kept("layers[0].weight", statement, "weight")))
    golden(f"{KIND}-layers.txt", found)


def test_a_tensor_in_a_list_or_an_object_is_registered_or_moved():
    (listed,) = findings(fault(operand("x"), kept("anchors[0]", "self.anchors = [torch.ones(2)]")))
    (inside,) = findings(fault(operand("x"), kept("grid.centres", "self.grid = Grid()")))
    assert "nn.ParameterList(nn.Parameter(part, requires_grad=False) for part in [torch.ones(2)])" in listed.fixes[0].code
    assert inside.fixes[0].code == "h = h.to(x.device)"


def test_layers_that_no_optimizer_reaches_are_one_finding(golden):
    weight = dataclasses.replace(kept("layers[0].weight", "self.layers = [nn.Linear(2, 2)]", "weight"), device=GPU0)
    (found,) = findings(fault(weight, what="untrained", call="step", phase="optimizer", error="", healed=False))
    golden(f"{KIND}-untrained.txt", found)


@pytest.mark.parametrize("how", ["global", "closure", "batch"])
def test_what_no_module_keeps_is_another_kind(how):
    stray = operand("RARE", CPU, stray=True, held=Held(None, "RARE", how))
    assert [each.kind for each in findings(fault(operand("x"), stray))] == ["wrong-device"]


def test_after_the_fix_a_buffer_beside_its_input_is_silent():
    mask = operand("self.mask", held=Held("block", "mask", "buffer", "Block"))
    assert is_silent(KIND, fault(operand("x"), mask))


@pytest.mark.parametrize(
    ("statement", "lines"),
    [
        (
            "self.cos, self.sin = t.cos(), t.sin()",
            [
                "self.register_buffer('cos', t.cos(), persistent=False)",
                "self.register_buffer('sin', t.sin(), persistent=False)",
            ],
        ),
        (
            "self.cos, self.sin = tables(8)",
            [
                "cos, sin = tables(8)",
                "self.register_buffer('cos', cos, persistent=False)",
                "self.register_buffer('sin', sin, persistent=False)",
            ],
        ),
    ],
)
def test_tensors_of_one_unpacked_assignment_are_registered_together(statement, lines):
    first, second = kept("cos", statement, "self.cos"), kept("sin", statement, "self.sin")
    (found,) = findings(fault(operand("x"), first, number=0), fault(operand("x"), second, number=1))
    assert found.fixes[0].code.splitlines() == lines


def test_what_is_no_stray_of_an_unpacked_assignment_stays_as_it_is():
    (found,) = findings(fault(operand("x"), kept("mask", "self.width, self.mask = 3, torch.ones(3)", "self.mask")))
    assert found.fixes[0].code.splitlines() == [
        "self.width = 3",
        "self.register_buffer('mask', torch.ones(3), persistent=False)",
    ]


def test_an_unpacked_assignment_that_reads_what_it_sets_is_computed_first():
    (found,) = findings(fault(operand("x"), kept("a", "self.a, self.b = torch.ones(2), self.a * 2", "self.a")))
    assert found.fixes[0].code.splitlines() == [
        "a, b = torch.ones(2), self.a * 2",
        "self.register_buffer('a', a, persistent=False)",
        "self.b = b",
    ]


@pytest.mark.parametrize("assigned", ["self.pe = pe.unsqueeze(0)", "self.pe = pe[None].float()"])
def test_an_attribute_that_a_method_of_a_variable_gives_was_born_where_that_was_made(assigned):
    made = site("pe = torch.zeros(5, 8)", 3, "__init__")
    held = dataclasses.replace(attribute("pe", assigned), assigned=site(assigned, 5, "__init__"))
    (found,) = findings(fault(operand("x"), operand("self.pe", CPU, stray=True, birth=made, held=held)))
    assert found.birth == made


@pytest.mark.parametrize("assigned", ["self.pe = torch.zeros(4)", "self.pe = torch.cumsum(pe, 0)"])
def test_what_a_function_of_torch_makes_for_an_attribute_was_born_there(assigned):
    made = site("pe = torch.zeros(5, 8)", 3, "__init__")
    held = dataclasses.replace(attribute("pe", assigned), assigned=site(assigned, 5, "__init__"))
    (found,) = findings(fault(operand("x"), operand("self.pe", CPU, stray=True, birth=made, held=held)))
    assert found.birth == held.assigned
