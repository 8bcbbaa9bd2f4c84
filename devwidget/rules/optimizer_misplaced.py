"""optimizer-misplaced: the optimizer's state is not where its parameters are, or its parameters are not those that train.

Why: an optimizer keeps references; state that it allocates at construction stays where it was when the model moves.
Bad: `Adagrad(model.parameters())`, then `model.cuda()`; an optimizer built before a layer is replaced.
Good: move and finish the model first, then build the optimizer.
Source: https://docs.pytorch.org/docs/stable/optim.html#constructing-it; pytorch#7844 (SGD and Adam survive the move).
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.trace import Fault, Trace
from devwidget.rules._registry import confirmed, rule
from devwidget.rules._wording import described


@rule("optimizer-misplaced", needs=("backward", "optimizer"))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each optimizer and problem."""
    for fault in trace.faults:
        if fault.what == "optimizer":
            yield _finding(fault, dict(fault.facts))


def _finding(fault: Fault, facts: dict[str, str]) -> Finding:
    optimizer = facts["optimizer"]
    if facts["problem"] == "state":
        headline = f"`{optimizer}` keeps `{facts['state']}` on {fault.operands[0].device} for parameters on {fault.target}"
        why = "the state was allocated when the optimizer was built, and does not move with the model"
    else:
        headline = f"`{optimizer}` does not know `{facts['missing']}`, which received gradients"
        frozen = facts["reason"] == "frozen"
        age = "were frozen when the optimizer was built" if frozen else "are younger than the optimizer"
        why = f"the parameters {age}, and it only trains those it was given"
    return Finding(
        kind="optimizer-misplaced",
        severity="error",
        module=None,
        headline=headline,
        why=why,
        fault=fault.site,
        birth=fault.birth or fault.site,
        fixes=_confirmed(fault, facts),
        operands=described(fault.operands[:4]),
        explains=(fault.number,),
        cause=f"{optimizer} {facts['problem']} {fault.birth or fault.site}",
    )


def _confirmed(fault: Fault, facts: dict[str, str]) -> tuple[Fix, ...]:
    """A healed run moves state to its parameters; it gives no optimizer a parameter."""
    fixes = _fixes(fault, facts)
    return confirmed(fixes, fault) if facts["problem"] == "state" else tuple(fixes)


def _fixes(fault: Fault, facts: dict[str, str]) -> Iterator[Fix]:
    model = fault.model_name or "model"
    if facts["problem"] == "state":
        line = fault.birth.text if fault.birth is not None else f"torch.optim.{facts['optimizer']}({model}.parameters())"
        yield Fix("build the optimizer after the model has moved", f"{model}.to({str(fault.target)!r})\n{line}", "sure")
        return
    when = "after the parameters are freed" if facts["reason"] == "frozen" else "after the last layer is in place"
    yield Fix(f"build the optimizer {when}", "", "sure")
    yield Fix("or add the group", f"optimizer.add_param_group({{'params': {model}.parameters()}})", "choice")
