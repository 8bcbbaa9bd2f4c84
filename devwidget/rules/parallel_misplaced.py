"""parallel-misplaced: a DataParallel wrapper and the placement of what it wraps disagree.

Why: DataParallel copies the model from `device_ids[0]` at every call, so all of it must be there.
Bad: `nn.DataParallel(model.to('cuda:0'), device_ids=[2, 3])`; a wrapper around a model meant for the CPU.
Good: `nn.DataParallel(model.to('cuda:2'), device_ids=[2, 3])`, or CUDA_VISIBLE_DEVICES=2,3 and `device_ids=[0, 1]`.
Source: `torch.nn.DataParallel.forward`, "module must have its parameters and buffers on device".
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.trace import Fault, Trace
from devwidget.rules._registry import confirmed, rule


@rule("parallel-misplaced", needs=("replicas",))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each wrapper that could not run."""
    for fault in trace.faults:
        if fault.what == "parallel":
            yield _finding(fault)


def _finding(fault: Fault) -> Finding:
    facts = dict(fault.facts)
    name = fault.operands[0].argument
    return Finding(
        kind="parallel-misplaced",
        severity="error",
        module=fault.module,
        headline=f"`DataParallel` with device_ids [{facts['device_ids']}] wraps a model on {facts['found']}",
        why="the replicas are copied from `device_ids[0]`, so every parameter and buffer must be there",
        fault=fault.site,
        birth=fault.birth or fault.site,
        fixes=_confirmed(fault, facts),
        notes=(f"`{name}` is on {fault.operands[0].device}, `device_ids[0]` is {fault.target}",),
        explains=(fault.number,),
    )


def _confirmed(fault: Fault, facts: dict[str, str]) -> tuple[Fix, ...]:
    """A healed run calls the model without its wrapper, and moves nothing."""
    fixes = _fixes(fault, facts)
    return confirmed(fixes, fault) if facts["found"] == "cpu" else tuple(fixes)


def _fixes(fault: Fault, facts: dict[str, str]) -> Iterator[Fix]:
    model, target = fault.model_name or "model", str(fault.target)
    if facts["found"] == "cpu":
        yield Fix("for a model meant for the CPU, remove the wrapper", f"{model} = {model}.module", "choice")
        yield Fix("for GPUs, move the model before it is wrapped", f"{model}.to({target!r})", "choice")
        return
    yield Fix("move the model to `device_ids[0]`", f"{model}.to({target!r})", "likely")
    first = facts["found"].partition(":")[2]
    if first.isdigit():
        yield Fix(
            f"or begin the list with the model's GPU, as in device_ids=[{first}, ...]; "
            f"CUDA_VISIBLE_DEVICES={facts['device_ids'].replace(' ', '')} makes these cards 0, 1, ...",
            "",
            "choice",
        )
