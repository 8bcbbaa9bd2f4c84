"""Writes devwidget/simulator/operators/kernels/dtype_rules.py: which operators CUDA lacks for which dtypes, by torch's op_db.

Run as `python -m tests.simulator.judges.dtype_rules_source`; it takes ten minutes. op_db says of whole functions what CUDA
supports. An operator is blamed for a dtype if a function that CUDA does not support runs all the same on the CPU, if no
function that CUDA supports runs that operator with that dtype, and if it is the only such one in each of the samples. Where
a plain CPU accepts what the list denies it too, the list is not exact.
"""

from __future__ import annotations

import itertools
import pathlib
import textwrap
import warnings
from collections import defaultdict
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import devwidget
from devwidget.simulator.operators import rule_table
from tests.simulator.judges.verdicts import OPERATORS, _is_excused

TARGET = pathlib.Path(rule_table.__file__).with_name("kernels") / "dtype_rules.py"
SAMPLES = 5
"""As many of what CUDA supports; of what it does not, all."""
JUDGED = (torch.half, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64)
SMALL, LARGER = (torch.int8, torch.int16), (torch.int32, torch.int64)
"""Not judged themselves: what CUDA lacks for both of the larger integers it lacks for these."""
HEAD = """\"\"\"For which dtypes CUDA has no kernel where the CPU has one: generated from torch's op_db, do not edit.

`python -m tests.simulator.judges.dtype_rules_source` writes this file.
\"\"\"

LACKING: dict[str, str] = {""".split("\n")
IN_PLACE_OTHERWISE = {"bernoulli"}
"""It fills whole numbers in place, and makes none."""
Calls = set[tuple[str, torch.dtype]]


class Operators(TorchDispatchMode):
    """Notes the name of each operator with the dtype of its first tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Calls = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = next((leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)), None)
        if first is not None and func.namespace == "aten":
            self.seen.add((func._schema.name.removeprefix("aten::").removesuffix("_"), first.dtype))
        return func(*args, **(kwargs or {}))


def calls(op: Any, dtype: torch.dtype, is_there: bool) -> list[Calls]:
    """The operators of each sample; of no sample, if CUDA does not support the dtype and one of them fails here too."""
    found = []
    try:
        for sample in itertools.islice(op.sample_inputs("cuda", dtype), SAMPLES if is_there else None):
            with Operators() as operators:
                op(sample.input, *sample.args, **sample.kwargs)
            found.append(operators.seen)
    except Exception:  # whatever it is, the function is refused
        return found if is_there else []
    return found


def is_exact(op: Any, dtype: torch.dtype) -> bool:
    """Whether the list is right of the CPU, where that can be asked."""
    if dtype in op.supported_dtypes("cpu"):
        return True
    try:
        for sample in op.sample_inputs("cpu", dtype):
            op(sample.input, *sample.args, **sample.kwargs)
    except Exception:  # whatever it is, the function is refused
        return True
    return False


def blamed() -> Calls:
    """Operators with a dtype for which CUDA has no kernel, and the CPU has."""
    supported: Calls = set()
    accepted = []
    for op, dtype in itertools.product(OPERATORS.values(), JUDGED):
        is_there = dtype in op.supported_dtypes("cuda")
        if not is_there and (_is_excused(op, "test_dtypes", dtype) or not is_exact(op, dtype)):
            continue
        with devwidget.simulate(gpus=1):
            found = calls(op, dtype, is_there)
        if is_there:
            supported.update(*found)
        elif found:
            accepted.append([{call for call in sample if call[1] == dtype} for sample in found])
    left = [[sample - supported for sample in samples] for samples in accepted]
    found = {call for samples in left if all(len(sample) <= 1 for sample in samples) for sample in samples for call in sample}
    both = {name for name, _ in found if all((name, dtype) in found for dtype in LARGER)}
    found |= {(name, dtype) for name in both for dtype in SMALL}
    return {(name, dtype) for name, dtype in found if name not in IN_PLACE_OTHERWISE}


def render(found: Calls) -> str:
    """The file's text."""
    dtypes = defaultdict(set)
    for name, dtype in found:
        dtypes[name].add(str(dtype).removeprefix("torch."))
    groups = defaultdict(list)
    for name, lacking in dtypes.items():
        groups[" ".join(sorted(lacking))].append(name)
    lines = [*HEAD]
    for lacking, names in sorted(groups.items()):
        text = textwrap.fill(" ".join(sorted(names)), 118, break_long_words=False, break_on_hyphens=False)
        lines += [f'    "{lacking}": """', textwrap.indent(text, "        "), '    """,']
    return "\n".join([*lines, "}", '"""The dtypes -> operators of all overloads."""', ""])


def main() -> None:
    """Write the file; what stands in it must not hide what is there to be seen."""
    warnings.simplefilter("ignore")
    rule_table.LACKING.clear()
    TARGET.write_text(render(blamed()))


if __name__ == "__main__":
    main()
