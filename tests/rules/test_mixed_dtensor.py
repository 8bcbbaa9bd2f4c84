"""mixed-dtensor: a plain tensor among DTensors."""

import dataclasses

from devwidget.records.fault_details import HookBypassed
from tests.rules.builders import CPU, fault, findings, is_silent, operand, site

KIND = "mixed-dtensor"
X = operand("x", CPU, stray=True, birth=site("x = torch.ones(2, 3)", 3, "train"))
WEIGHT = operand("layer.weight", CPU)
MIXED = fault(X, WEIGHT, what="dtensor", call="linear", target=CPU, healed=False, expression="layer(x)",
              site=site("y = layer(x)  # layer.weight", 4, "train"),
              error="RuntimeError: aten.addmm.default: got mixed torch.Tensor and DTensor")  # fmt: skip


def test_a_plain_tensor_among_dtensors_is_one_finding(golden):
    (found,) = findings(MIXED)
    golden(f"{KIND}.txt", found)


def test_a_method_without_hooks_offers_to_register_it():
    (found,) = findings(dataclasses.replace(MIXED, detail=HookBypassed("Tower", "embed")))
    assert [each.code for each in found.fixes] == ["register_fsdp_forward_method(model, 'embed')"]


def test_dtensors_alone_are_silent():
    assert is_silent(KIND, dataclasses.replace(MIXED, operands=(WEIGHT,)))
