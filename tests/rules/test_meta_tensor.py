"""meta-tensor: tensors without data."""

import dataclasses

from devwidget.records.trace import Held
from tests.rules.builders import CPU, META, fault, findings, is_silent, operand, site

KIND = "meta-tensor"
WEIGHT = operand("weight", META, stray=True, birth=site("self.head = nn.Linear(3, 2)", 4, "__init__"),
                 held=Held("head", "weight", "parameter", "Linear"))  # fmt: skip
USED = fault(operand("x"), WEIGHT, what="meta", call="addmm", module="head", site=site("return self.head(x)", 9), healed=False)


def test_a_weight_without_data_that_computes_is_one_finding(golden):
    (found,) = findings(USED)
    golden(f"{KIND}.txt", found)


def test_a_model_beside_data_on_the_cpu_is_given_memory_there():
    (found,) = findings(dataclasses.replace(USED, target=CPU))
    assert "model.to_empty(device='cpu')" in found.fixes[0].code


def test_a_tensor_that_nobody_holds_goes_by_its_name():
    (found,) = findings(
        dataclasses.replace(USED, operands=(operand("h", META, stray=True),), site=site("return self.head(h)", 9))
    )
    assert found.headline == "`h` is on the meta device and has no data for `addmm`"


def test_shapes_that_are_worked_out_on_meta_alone_are_silent():
    assert is_silent(KIND, fault(operand("x", META), operand("weight", META), what="meta"))


def test_after_the_fix_a_weight_with_memory_is_silent():
    held = dataclasses.replace(WEIGHT, device=USED.target, stray=False)
    assert is_silent(KIND, dataclasses.replace(USED, operands=(operand("x"), held)))
