"""Writes devwidget/gpus/dtype_rules.txt: which operators CUDA lacks for which dtypes, by torch's op_db.

Run as `python -m tests.gpus.judges.dtype_rules_source`; it takes minutes, in a child as the judge has it.

op_db says of whole functions what CUDA supports. An operator is blamed for a dtype if a function that CUDA does not support
runs all the same on the CPU, if no function that CUDA supports runs that operator with that dtype, and if it is the only
such one in each of the samples; and one overload of it, if others are supported. Where a plain CPU accepts what the list
denies it too, the list is not exact.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from devwidget.gpus import kernels
from devwidget.gpus.call import OpSchema
from tests.gpus.judges import op_db
from tests.gpus.judges.verdicts import DTYPES, Verdict, as_found, is_excused, tensors, wanting_gradients

TARGET = pathlib.Path(kernels.__file__).with_name("dtype_rules.txt")
SAMPLES = 3
"""As many of what CUDA supports; of what it does not, all."""
Calls = set[tuple[str, str]]
"""Operators, alone and with the overload, with the dtype of the first tensor."""


class Operators(TorchDispatchMode):
    """Notes the name of each operator, alone and with its overload, with the dtype of its first tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Calls = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = next((leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)), None)
        if first is not None and func.namespace == "aten":
            schema = OpSchema(func)
            dtype = str(first.dtype)
            self.seen |= {(schema.base, dtype), (schema.overload, dtype)}
        return func(*args, **(kwargs or {}))


class Asked(set[str]):
    """Allows all operators in half precision, and notes which ones the CPU lacks."""

    def __contains__(self, name: object) -> bool:
        self.add(str(name))
        return True


def judge(name: str, short: str) -> Iterator[Verdict]:
    """The operators that one function runs with one dtype: whether CUDA supports that, and which ones in each sample.

    What the file says must not hide what is there to be seen.
    """
    kernels.LACKING.clear()
    kernels.COMPLEX_HALF = asked = Asked()
    op, dtype = as_found(name), getattr(torch, short)
    is_there = dtype in op.supported_dtypes("cuda")
    if is_there or (not is_excused(op, "test_dtypes", dtype) and is_exact(op, dtype)):
        seen = [sorted(calls) for calls in calls_of(op, dtype, is_there)]
        yield Verdict(name, short, "calls", is_there, json.dumps([seen, sorted(asked)]))


def calls_of(op: Any, dtype: torch.dtype, is_there: bool) -> list[Calls]:
    """The operators of each sample; of no sample, if CUDA does not support the dtype and one of them fails here too."""
    found = []
    try:
        for sample in itertools.islice(wanting_gradients(op, "cuda", dtype), SAMPLES if is_there else None):
            with Operators() as operators:
                result = op(sample.input, *sample.args, **sample.kwargs)
                if is_there and dtype == torch.complex32 and dtype in op.supported_backward_dtypes("cuda"):
                    backward(sample.output_process_fn_grad(result))
            found.append(operators.seen)
    except Exception:  # whatever it is, the function is refused
        return found if is_there else []
    return found


def backward(result: Any) -> None:
    """Run the operators of backward too."""
    roots = [root for root in tensors(result) if root.requires_grad]
    torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])


def is_exact(op: Any, dtype: torch.dtype) -> bool:
    """Whether the list is right of the CPU, where that can be asked."""
    if dtype in op.supported_dtypes("cpu"):
        return True
    try:
        for sample in wanting_gradients(op, "cpu", dtype):
            op(sample.input, *sample.args, **sample.kwargs)
    except Exception:  # whatever it is, the function is refused
        return True
    return False


def judged() -> tuple[Calls, list[list[Calls]], set[str]]:
    """Of all functions.

    Returns:
        Operators that CUDA supports with a dtype; for each function that it does not those of the samples that run here;
        and the operators that a wider dtype stands in for.
    """
    supported: Calls = set()
    accepted, asked = [], set()
    dtypes = [f"calls:{str(dtype).removeprefix('torch.')}" for dtype in DTYPES]
    for name, short, question, is_there, text in op_db.run(op_db.all_jobs((), dtypes), SAMPLES):
        if question != "calls":
            print(f"{name} with {short} is left out: {question}", file=sys.stderr)
            continue
        seen, wider = json.loads(text)
        samples = [{(call, of) for call, of in sample if is_there or of == f"torch.{short}"} for sample in seen]
        asked.update(wider)
        if is_there:
            supported.update(*samples)
        elif samples:
            accepted.append(samples)
    return supported, accepted, asked


def blamed(supported: Calls, accepted: list[list[Calls]]) -> Calls:
    """Operators with a dtype for which CUDA has no kernel, and the CPU has; overloads where all of them are too many."""
    of_all = alone(supported, accepted, lambda name: "." not in name)
    return of_all | {
        (name, dtype)
        for name, dtype in alone(supported, accepted, lambda name: "." in name)
        if (name.partition(".")[0], dtype) not in of_all
    }


def alone(supported: Calls, accepted: list[list[Calls]], is_asked: Callable[[str], bool]) -> Calls:
    """Those that are the only ones in a sample that CUDA does not support."""
    left = [[{call for call in sample - supported if is_asked(call[0])} for sample in samples] for samples in accepted]
    return {call for samples in left if all(len(sample) <= 1 for sample in samples) for sample in samples for call in sample}


def render(found: Calls, halves: set[str]) -> str:
    """The file's text."""
    dtypes = defaultdict(set)
    for name, dtype in found:
        dtypes[name].add(dtype.removeprefix("torch."))
    groups = defaultdict(list)
    for name, lacking in sorted(dtypes.items(), key=lambda item: sorted(item[1])):
        groups[" ".join(sorted(lacking))].append(name)
    groups["complex32"] = list(halves)
    return "\n\n".join(f"{lacking}\n{fill(names)}" for lacking, names in groups.items()) + "\n"


def fill(names: Iterable[str]) -> str:
    """Names in lines."""
    return textwrap.fill(" ".join(sorted(names)), 124, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    """Write the file."""
    supported, accepted, asked = judged()
    halves = {name for name, dtype in supported if dtype == "torch.complex32"}
    TARGET.write_text(render(blamed(supported, accepted), halves & asked))


if __name__ == "__main__":
    main()
