"""wrong-dtype: constants that do not fit, and float64 that spreads."""

import dataclasses

from devwidget.records.trace import Trace
from devwidget.rules import wrong_dtype
from tests.rules.builders import fault, operand


def findings(what, problem=""):
    facts = (("problem", problem), ("wanted", "float32")) if problem else (("wanted", "float32"),)
    one = dataclasses.replace(fault(operand("x"), operand("gain", stray=True)), what=what, facts=facts)
    return list(wrong_dtype.check(Trace(faults=(one,))))


def test_a_float64_tensor_that_spreads_is_a_warning():
    (found,) = findings("promotion")
    assert (found.kind, found.severity) == ("wrong-dtype", "warning")


def test_a_constant_that_does_not_fit_is_an_error_with_the_limit_of_the_dtype():
    (found,) = findings("dtype", "constant")
    assert found.severity == "error"
    assert "torch.finfo" in found.fixes[0].code


def test_a_fault_of_devices_is_not_one_of_dtypes():
    assert findings("operands") == []
