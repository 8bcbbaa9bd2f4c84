"""replica-state-lost: `forward` relies on something that a DataParallel replica does not have, or loses.

Why: replicas are made anew at every call and thrown away after it; their parameters are copies kept as plain tensors.
Bad: `self.calls += 1` in `forward`; `next(self.parameters()).device`.
Good: a registered buffer, updated in place; `x.device`; DistributedDataParallel, which makes no replicas.
Source: the warning in https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.trace import Fault, Trace
from devwidget.rules._registry import rule


@rule("replica-state-lost", needs=("replicas",))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each attribute that is lost, or look-up that finds nothing."""
    for fault in trace.faults:
        if fault.what == "replica":
            yield _finding(fault, dict(fault.facts))


def _finding(fault: Fault, facts: dict[str, str]) -> Finding:
    written = facts["problem"] == "write"
    name = facts["attribute"]
    return Finding(
        kind="replica-state-lost",
        severity="error",
        module=fault.module,
        headline=f"`self.{name}` is written in a replica and lost with it"
        if written
        else "`self.parameters()` is empty in a replica",
        why="DataParallel makes its replicas anew at every call and throws them away"
        if written
        else "a replica keeps its parameters as plain tensors, so that gradients flow back through the copies",
        fault=fault.site,
        fixes=tuple(_written(name) if written else _looked_up(name)),
        explains=(fault.number,),
    )


def _written(name: str) -> Iterator[Fix]:
    buffer = f"self.register_buffer({name!r}, torch.zeros(()))  # in __init__; in forward: self.{name}.add_(1)"
    yield Fix("keep it in a buffer and update that in place: the first device's is kept", buffer, "likely")
    yield Fix("or count outside forward, in the training loop; or use DistributedDataParallel", "", "choice")


def _looked_up(name: str) -> Iterator[Fix]:
    yield Fix("take the device from an input, x.device, or make the tensor with x.new_zeros(...)", "", "likely")
    yield Fix("or from a parameter by its name, such as self.<layer>.weight", f"self.{name}.device", "choice")
    yield Fix("or use DistributedDataParallel, which makes no replicas", "", "choice")
