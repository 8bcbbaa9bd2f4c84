"""parallel-io: what enters or leaves DataParallel cannot be split or joined as intended.

Why: every tensor is cut along its first axis, one piece for each GPU, and the outputs are joined along it.
Bad: a `forward` that returns a scalar loss; a hidden state of shape [layers, batch, width].
Good: `loss = model(x, y).mean()`; a hidden state made inside `forward`, or with the batch first.
Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.trace import Fault, Trace
from devwidget.rules._registry import rule
from devwidget.rules._wording import described


@rule("parallel-io", needs=("replicas",))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each input or output that does not fit the wrapper."""
    for fault in trace.faults:
        if fault.what == "io":
            yield _finding(fault, dict(fault.facts))


def _finding(fault: Fault, facts: dict[str, str]) -> Finding:
    birth = next((operand.birth for operand in fault.operands if operand.birth is not None), None)
    return Finding(
        kind="parallel-io",
        severity="error",
        module=fault.module,
        headline=_headline(fault, facts),
        why="DataParallel cuts every tensor along one axis, a piece for each GPU, and joins the outputs along it",
        fault=fault.site,
        birth=birth,
        fixes=tuple(_fixes(facts)),
        notes=(f"the replica failed with {fault.error}",) if fault.error else (),
        operands=described(fault.operands),
        explains=(fault.number,),
    )


def _headline(fault: Fault, facts: dict[str, str]) -> str:
    if facts["problem"] == "scalar":
        return f"`{facts['owner']}.forward` returns a scalar, and {facts['replicas']} of them are gathered into a vector"
    if facts["problem"] == "axis":
        shape = list(fault.operands[0].shape) if fault.operands else []
        return f"an input of shape {shape} is cut along axis {facts['dim']}, where the batch has length {facts['batch']}"
    return f"{facts['samples']} samples cannot feed {facts['replicas']} replicas, and the values that are no tensors go to all"


def _fixes(facts: dict[str, str]) -> Iterator[Fix]:
    if facts["problem"] == "scalar":
        yield Fix("reduce the gathered losses before backward", "loss = loss.mean()", "sure")
        yield Fix("or return one value for each sample, or loss.unsqueeze(0)", "", "choice")
    elif facts["problem"] == "axis":
        yield Fix("make the state inside forward, from the replica's own share of the batch", "", "likely")
        yield Fix("or pass it with the batch first and transpose(0, 1) it inside forward", "", "choice")
    else:
        yield Fix("use batches of at least as many samples as there are GPUs, or drop_last=True in the loader", "", "likely")
