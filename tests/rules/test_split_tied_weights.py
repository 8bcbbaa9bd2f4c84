"""split-tied-weights: one parameter in two places that went different ways."""

import dataclasses

import pytest

from devwidget.records.trace import Held
from tests.rules.builders import CPU, GPU0, GPU1, fault, findings, is_silent, operand, site

KIND = "split-tied-weights"
TIED = Held("head", "weight", "parameter", "Linear", shared=("embed.weight",), left_behind="head")
MOVED = site("model.head.to('cuda:1')", 6, "train")
WEIGHT = operand("self.weight", GPU1, stray=True, birth=MOVED, from_move=True, held=TIED)
DRAGGED = fault(WEIGHT, operand("ids", dtype="int64"), call="embedding", module="embed", site=site("h = self.embed(ids)", 12))


def test_a_weight_that_was_dragged_along_is_one_finding(golden):
    (found,) = findings(DRAGGED)
    golden(f"{KIND}.txt", found)


def test_a_weight_that_was_copied_and_trains_apart_is_one_finding(golden):
    copied = dataclasses.replace(WEIGHT, expression="head.weight")
    (found,) = findings(fault(copied, what="tie", call="to", module="head", error="", site=MOVED, healed=False))
    golden(f"{KIND}-copied.txt", found)


@pytest.mark.parametrize(
    ("device", "held"),
    [
        pytest.param(GPU1, dataclasses.replace(TIED, shared=()), id="nobody shares it"),
        pytest.param(CPU, TIED, id="never moved"),
        pytest.param(GPU1, dataclasses.replace(TIED, left_behind=""), id="the whole model is there"),
    ],
)
def test_a_weight_that_no_tie_dragged_is_another_kind(device, held):
    found = findings(dataclasses.replace(DRAGGED, operands=(operand("w", device, stray=True, held=held), operand("x", GPU0))))
    assert [each.kind for each in found] == ["wrong-device"]


def test_after_the_fix_a_tie_on_one_device_is_silent():
    together = dataclasses.replace(WEIGHT, device=GPU0, stray=False)
    assert is_silent(KIND, fault(together, what="tie", error=""))
