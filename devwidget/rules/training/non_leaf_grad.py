"""non-leaf-grad: a tensor that should be optimized is not a leaf, because it was moved after `requires_grad` was set.

Why: `.cuda()` on a tensor that requires a gradient is an operation; the gradient goes to the original.
Bad: `torch.randn(4, requires_grad=True).cuda()`.
Good: `torch.randn(4, device='cuda', requires_grad=True)`, or an `nn.Parameter`.
Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_leaf.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.trace import Fault, Operand, Trace
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.found import Found
from devwidget.rules.registry import rule


@rule(
    "non-leaf-grad",
    "error",
    needs=("backward",),
    why=Message("moving a tensor that requires grad creates a non-leaf tensor; only the original is a leaf"),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each non-leaf tensor that was passed to an optimizer, or whose `.grad` the code reads."""
    for fault in trace.faults:
        if fault.what != "leaf":
            continue
        for operand in fault.operands:
            yield Found(
                fault.site,
                _headline(fault, operand),
                birth=operand.birth,
                fixes=_list_fixes(operand),
                operands=[operand],
                explains=(fault.number,),
            )


def _headline(fault: Fault, operand: Operand) -> Message:
    if fault.call == "grad":
        return Message("`{expression}` has no `.grad`: it is not a leaf", expression=operand.expression)
    return Message("`{expression}` was passed to an optimizer but is not a leaf", expression=operand.expression)


def _list_fixes(operand: Operand) -> Iterator[Fix | None]:
    words = Message("detach it, so that it is a leaf")
    for birth in (operand.birth, operand.held.assigned if operand.held is not None else None):
        yield mended(birth, Message("create it on its device, so that it is a leaf there"), _made_as_leaf)
        yield mended(birth, words, _cut_off)
    name = operand.expression
    yield Fix(words, f"{name} = {name}.detach().requires_grad_()")
    yield Fix(Message("make it an nn.Parameter of the module, so that it moves with the module"), confidence="choice")


def _made_as_leaf(draft: Draft, statement: ast.stmt) -> None:
    """`torch.randn(4, requires_grad=True).cuda()`: move before the flag, or inside the nn.Parameter."""
    moved = _move(statement)
    inner = moved.func.value if moved is not None and isinstance(moved.func, ast.Attribute) else None
    if moved is None or not isinstance(inner, ast.Call):
        return
    tail = draft.code.text(moved)[len(draft.code.text(inner)) :]
    flags = [k for k in inner.keywords if k.arg == "requires_grad"]
    if flags:
        rest = ", ".join(draft.code.text(a) for a in (*inner.args, *(k for k in inner.keywords if k not in flags)))
        draft.replace(moved, f"{draft.code.text(inner.func)}({rest}){tail}.requires_grad_()")
    elif ast.unparse(inner.func).endswith("Parameter") and inner.args:
        draft.replace(moved, f"{draft.code.text(inner.func)}({draft.code.text(inner.args[0])}{tail})")


def _cut_off(draft: Draft, statement: ast.stmt) -> None:
    moved = _move(statement)
    if moved is not None:
        draft.append(moved, ".detach().requires_grad_()")


def _move(statement: ast.stmt) -> ast.Call | None:
    value = getattr(statement, "value", None)
    is_move = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)
    if is_move and isinstance(statement, ast.Assign):
        return value
    return None
