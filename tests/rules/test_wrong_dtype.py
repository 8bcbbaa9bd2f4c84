"""wrong-dtype: floating types that do not mix, constants that do not fit, and float64 that spreads."""

import dataclasses

from devwidget.records.fault_details import WrongDtype
from tests.rules.builders import fault, findings, is_silent, operand, site

KIND = "wrong-dtype"
DOUBLE = operand("x", dtype="float64", stray=True, birth=site("x = torch.from_numpy(array)", 3, "train"))
MIXED = fault(DOUBLE, operand("weight"), what="dtype", call="addmm", module="head", site=site("return self.head(x)", 9),
              error="RuntimeError: mat1 and mat2 must have the same dtype", detail=WrongDtype("float32"))  # fmt: skip


def test_types_that_do_not_mix_are_one_finding(golden):
    (found,) = findings(MIXED)
    golden(f"{KIND}.txt", found)


def test_a_float64_tensor_that_spreads_is_a_warning(golden):
    spreads = dataclasses.replace(MIXED, what="promotion", call="mul", error="", site=site("y = h * x", 9), healed=False)
    (found,) = findings(spreads)
    golden(f"{KIND}-promotion.txt", found)


def test_a_constant_that_does_not_fit_is_an_error_with_the_limit_of_the_dtype(golden):
    line = site("scores = scores.masked_fill(mask, -1e9)", 9)
    scores = operand("scores", dtype="float16", stray=True)
    detail = WrongDtype("float16", is_constant=True)
    (found,) = findings(
        fault(scores, what="dtype", call="masked_fill", site=line, detail=detail, error="RuntimeError: overflow")
    )
    golden(f"{KIND}-constant.txt", found)


def test_a_float64_tensor_that_raises_and_spreads_is_one_finding():
    spreads = dataclasses.replace(MIXED, number=1, what="promotion", call="mul", site=site("y = h * x", 10))
    (found,) = findings(MIXED, spreads)
    assert found.severity == "error"
    assert found.explains == (0, 1)


def test_types_that_autocast_reconciles_stay_silent():
    half = dataclasses.replace(DOUBLE, dtype="float16", stray=False)
    assert is_silent(KIND, dataclasses.replace(MIXED, operands=(half, operand("weight"))))
