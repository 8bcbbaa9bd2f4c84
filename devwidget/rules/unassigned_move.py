"""unassigned-move: the author asked for a move that did not happen.

Why: `Tensor.to` returns the moved tensor and leaves the tensor itself where it is; only `Module.to` works in place.
Bad: `x.to('cuda:0')` alone on its line; `x.cuda` without parentheses.
Good: `x = x.to('cuda:0')`.
Source: the documentation of `torch.Tensor.to`.
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.site import Site
from devwidget.records.trace import Fault, Operand, Trace
from devwidget.rules import _repairs
from devwidget.rules._registry import confirmed, rule
from devwidget.rules._wording import described, strays_in


@rule("unassigned-move", needs=("operations",))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each move that was asked for in vain and whose tensor was then missed."""
    for fault, _ in strays_in(trace, "operands", "dtype"):
        for stray in fault.operands:
            if stray.ineffective is not None:
                yield _finding(fault, stray, stray.ineffective)
                break


def _finding(fault: Fault, stray: Operand, move: Site) -> Finding:
    subject = _repairs.moved_name(move.text)
    return Finding(
        kind="unassigned-move",
        severity="error",
        module=fault.module,
        headline=f"the result of `{move.text}` is thrown away, and `{fault.call}` got the tensor that did not move",
        why="`Tensor.to` returns the moved tensor and leaves the tensor itself where it is",
        fault=fault.site,
        birth=move,
        fixes=confirmed(_fixes(fault, move, subject), fault),
        notes=(f"`{subject or stray.argument}` is still on {stray.device}",),
        operands=described(fault.operands),
        explains=(fault.number,),
    )


def _fixes(fault: Fault, move: Site, subject: str) -> Iterator[Fix]:
    if not subject:
        yield Fix("assign the result of the move", "", "likely")
        return
    call = move.text if move.text.endswith(")") else f"{move.text}()"
    yield Fix("assign the result", f"{subject} = {call}", "sure")
