"""non-leaf-grad: a tensor meant to be optimised is not a leaf, because it was moved after `requires_grad` was set.

Why: `.cuda()` on a tensor that requires a gradient is an operation; the leaf, which collects it, stays behind.
Bad: `torch.randn(4, requires_grad=True).cuda()`.
Good: `torch.randn(4, device='cuda', requires_grad=True)`, or an nn.Parameter of the module.
Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_leaf.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.trace import Fault, Operand, Trace
from devwidget.rules import _repairs
from devwidget.rules._registry import rule
from devwidget.rules._wording import described


@rule("non-leaf-grad", needs=("backward",))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each tensor that an optimizer refused, or that has no gradient where the code looks for it."""
    for fault in trace.faults:
        for operand in fault.operands if fault.what == "leaf" else ():
            yield _finding(fault, operand)


def _finding(fault: Fault, operand: Operand) -> Finding:
    told = "has no `.grad`" if fault.call == "grad" else "was given to an optimizer"
    return Finding(
        kind="non-leaf-grad",
        severity="error",
        module=None,
        headline=f"`{operand.expression}` {told} and is no leaf: an operation made it",
        why="a move of a tensor that requires a gradient is an operation, and the leaf stays behind it",
        fault=fault.site,
        birth=operand.birth,
        fixes=tuple(_fixes(operand)),
        operands=described([operand]),
        explains=(fault.number,),
    )


def _fixes(operand: Operand) -> Iterator[Fix]:
    statement = operand.birth.text if operand.birth is not None else ""
    code = _repairs.made_as_leaf(statement, str(operand.device))
    if code:
        yield Fix("make it on its device, so that it is a leaf there", code, "sure")
    name = operand.expression
    yield Fix("or cut it off from its origin after the move", f"{name} = {name}.detach().requires_grad_()")
    yield Fix("or make it an nn.Parameter of the module, which moves with it", "", "choice")
