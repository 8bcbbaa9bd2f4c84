"""non-leaf-grad: tensors that were moved after they asked for a gradient."""

import dataclasses

from tests.rules.builders import fault, findings, is_silent, operand, site

KIND = "non-leaf-grad"
BORN = site("prompt = torch.randn(4, requires_grad=True).cuda()", 3, "train")
PROMPT = operand("prompt", shape=(4,), birth=BORN)
GIVEN = fault(PROMPT, what="leaf", call="add_param_group", module=None, phase="build",
              site=site("optimizer = torch.optim.SGD([prompt], lr=0.1)", 4, "train"),
              error="ValueError: can't optimize a non-leaf Tensor")  # fmt: skip


def test_a_moved_tensor_given_to_an_optimizer_is_one_finding(golden):
    (found,) = findings(GIVEN)
    golden(f"{KIND}.txt", found)


def test_a_gradient_that_is_looked_for_says_so():
    (found,) = findings(dataclasses.replace(GIVEN, call="grad", error=""))
    assert found.headline == "`prompt` has no `.grad`: it is not a leaf"


def test_a_line_that_cannot_be_rewritten_still_has_a_fix():
    (found,) = findings(dataclasses.replace(GIVEN, operands=(dataclasses.replace(PROMPT, birth=None),)))
    assert found.fixes[0].code == "prompt = prompt.detach().requires_grad_()"


def test_a_tensor_that_no_optimizer_was_given_is_silent():
    assert is_silent(KIND, dataclasses.replace(GIVEN, operands=()))
