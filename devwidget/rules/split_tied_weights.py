"""split-tied-weights: two places are meant to share one parameter, and placement broke that.

Why: a shared parameter is one tensor; moving one of its modules moves it away from the other.
Bad: `model.embed.to('cuda:0')` and `model.head.to('cuda:1')` where `head.weight is embed.weight`.
Good: both modules on one device, the activations moved instead.
Source: https://huggingface.co/docs/accelerate/concept_guides/big_model_inference (tied parameters must share a device).
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.trace import Fault, Held, Operand, Trace
from devwidget.rules._registry import confirmed, rule
from devwidget.rules._wording import described, strays_in


@rule("split-tied-weights", needs=("forward",))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each fault whose stray is a parameter that several modules share."""
    for fault, _ in strays_in(trace, "operands"):
        for stray in fault.operands:
            held = stray.held
            if held is not None and held.shared and held.left_behind != "" and stray.device.is_accelerator:
                yield _finding(fault, stray, held)
                break
    for fault, stray in strays_in(trace, "tie"):
        if stray.held is not None:
            yield _copied(fault, stray, stray.held)


def _copied(fault: Fault, stray: Operand, held: Held) -> Finding:
    return Finding(
        kind="split-tied-weights",
        severity="error",
        module=fault.module,
        headline=f"`{stray.expression}` on {stray.device} began as a copy of `{held.shared[0]}` on {fault.target}; both train",
        why="two tensors with equal values are not tied: each takes its own steps from here on",
        fault=fault.site,
        birth=stray.birth,
        fixes=tuple(_fixes(fault, held)),
        operands=described(fault.operands),
        explains=(fault.number,),
    )


def _finding(fault: Fault, stray: Operand, held: Held) -> Finding:
    path = f"{held.module}.{held.name}".strip(".")
    others = ", ".join(f"`{other}`" for other in held.shared)
    return Finding(
        kind="split-tied-weights",
        severity="error",
        module=fault.module,
        headline=f"`{path}` is one tensor with {others}, and was taken to {stray.device} with it",
        why="a shared parameter is one tensor and lives on one device",
        fault=fault.site,
        birth=stray.birth,
        fixes=confirmed(_fixes(fault, held), fault),
        operands=described(fault.operands),
        explains=(fault.number,),
    )


def _fixes(fault: Fault, held: Held) -> Iterator[Fix]:
    model, target = fault.model_name or "model", str(fault.target)
    other = held.shared[0].rpartition(".")[0]
    yield Fix(
        "keep the tied modules on the same device, and move the activations between them",
        f"{model}.get_submodule({other!r}).to({target!r})  # that is {model}.{other}.to({target!r})",
        "likely",
    )
    yield Fix("or give up the tie: two independent parameters, trained apart", "", "choice")
