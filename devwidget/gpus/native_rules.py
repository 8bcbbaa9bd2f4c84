"""How CUDA checks the devices of each operator, and for which dtypes it has no kernel: tables read from torch's own lists.

`python tests/gpus/native_rules_source.py` writes `native_rules.txt` from native_functions.yaml, a test compares the two;
`python -m tests.gpus.judges.dtype_rules_source` writes `dtype_rules.txt` from op_db.
"""

from __future__ import annotations

from importlib import resources


def read_table(file: str) -> dict[str, frozenset[str]]:
    """Return the names in each paragraph of a file, by the title of the paragraph."""
    text = resources.files("devwidget.gpus").joinpath(file).read_text(encoding="utf-8")
    paragraphs = (paragraph.partition("\n") for paragraph in text.split("\n\n"))
    return {title: frozenset(names.split()) for title, _, names in paragraphs}


_CHECKS = read_table("native_rules.txt")
UNCHECKED = _CHECKS["UNCHECKED"]
"""`device_check: NoCheck`: the kernel itself decides, most by TensorIterator."""
STRUCTURED = _CHECKS["STRUCTURED"]
"""Checked by generated code, in a wrapper that is named after the function alone."""
COMPOSITE = _CHECKS["COMPOSITE"]
"""Made of other operators, for every device."""
CPU_ONLY = _CHECKS["CPU_ONLY"]
"""The CPU has a kernel, CUDA has none."""
LACKING = read_table("dtype_rules.txt")
"""Dtypes for which CUDA has no kernel -> operators of all overloads, or `operator.overload`."""
COMPLEX_HALF = LACKING.pop("complex32")
"""Operators that CUDA has for complex numbers in half precision; the CPU has hardly any."""
