"""unsupported-on-device: operators without a kernel."""

import dataclasses

from devwidget.records.fault_details import NoKernel
from tests.rules.builders import fault, findings, operand, site

KIND = "unsupported-on-device"
COUNTED = fault(
    operand("x", stray=True), what="kernel", call="histogram", site=site("counts, _ = torch.histogram(x, 10)", 8),
    error="NotImplementedError: Could not run 'aten::histogram.bin_ct'", expression="torch.histogram(x, 10)",
)  # fmt: skip


def test_an_operator_that_only_the_cpu_has_is_one_finding(golden):
    (found,) = findings(COUNTED)
    golden(f"{KIND}.txt", found)


def test_a_dtype_without_a_kernel_is_one_finding(golden):
    inverse = fault(
        operand("x", dtype="float16", stray=True), what="kernel", call="linalg_inv", site=site("y = torch.linalg.inv(x)", 8),
        error="RuntimeError: linalg.inv: Low precision dtypes not supported", expression="torch.linalg.inv(x)",
        detail=NoKernel("float16"),
    )  # fmt: skip
    (found,) = findings(inverse)
    golden(f"{KIND}-dtype.txt", found)


def test_a_call_whose_source_is_unknown_still_has_a_fix():
    (found,) = findings(dataclasses.replace(COUNTED, expression="", site=None, operands=()))
    assert found.fixes[0].code == "x.cpu()"
