"""unassigned-move: a move has no effect, because its result is not used.

Why: `Tensor.to` returns the moved tensor and leaves the original where it was, as do graphs and batches of many libraries;
`Module.to` works in place.
Bad: `x.to('cuda:0')` as a statement; `x.cuda` without parentheses.
Good: `x = x.to('cuda:0')`.
Source: the documentation of `torch.Tensor.to`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.trace import Fault, Operand, Trace
from devwidget.rules.edits import calls
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.found import Found
from devwidget.rules.registry import rule
from devwidget.rules.wording import name_of, strays_in


@rule(
    "unassigned-move",
    "error",
    needs=("operations",),
    why=Message("`Tensor.to` returns the moved tensor; the original tensor does not change"),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each discarded move of a tensor that an op then got on the wrong device."""
    for fault, _ in strays_in(trace, "operands", "dtype"):
        for stray in fault.operands:
            if stray.ineffective is not None:
                yield _make_finding(fault, stray, stray.ineffective)
                break


def _make_finding(fault: Fault, stray: Operand, move: Site) -> Found:
    subject = calls.moved_name(move.text)
    name = f"`{subject}`" if subject else name_of(fault, stray)
    why: str = ""
    if stray.ineffective_method:
        why = Message("`{method}` returns a moved copy; the original does not change", method=stray.ineffective_method)
    still = Message("{name} is still on {device} after {place}", name=name, device=stray.device, place=str(move))
    return Found(
        fault,
        Message("the result of `{text}` is discarded; `{call}` got the original tensor", text=move.text, call=fault.call),
        why=why,
        birth=move,
        fixes=_list_fixes(move, subject),
        notes=(still,),
    )


def _list_fixes(move: Site, subject: str) -> Iterator[Fix | None]:
    words = Message("assign the result")
    yield mended(move, words, _assign_result)
    yield Fix(words, f"{subject} = {move.text.split('#')[0].rstrip()}" if subject else "")


def _assign_result(draft: Draft, statement: ast.stmt) -> None:
    """`x.to(d)` becomes `x = x.to(d)`, `x.cuda` is called, `[t.to(d) for t in batch]` is assigned."""
    value = getattr(statement, "value", None)
    if isinstance(value, ast.ListComp) and isinstance(statement, ast.Expr):
        draft.insert_in_front(statement, f"{draft.code.text(value.generators[0].iter)} = ")
    method = value.func if isinstance(value, ast.Call) else value
    if not isinstance(method, ast.Attribute):
        return
    if isinstance(value, ast.Attribute):
        draft.append(value, "()")
    subject = draft.code.text(method.value)
    loop = draft.code.parents.get(statement)
    if isinstance(loop, ast.For):
        item = _item(loop, subject)
        if item:
            draft.insert_in_front(statement, f"{item} = ")
            return
        if draft.code.text(loop.target) == subject:
            _all_assigned(draft, loop, statement)
            return
    if isinstance(statement, ast.Expr):
        draft.insert_in_front(statement, f"{subject} = ")


def _item(loop: ast.For, name: str) -> str:
    """`t[k]` for the `v` of `for k, v in t.items()`; "" for other loops."""
    match loop:
        case ast.For(
            target=ast.Tuple(elts=[key, value]),
            iter=ast.Call(func=ast.Attribute(attr="items", value=mapping), args=[]),
        ) if ast.unparse(value) == name:
            return f"{ast.unparse(mapping)}[{ast.unparse(key)}]"
    return ""


def _all_assigned(draft: Draft, loop: ast.For, statement: ast.stmt) -> None:
    """`for t in self.parts: t.to(d)` becomes `self.parts = [t.to(d) for t in self.parts]`, if the loop does nothing else."""
    if loop.body == [statement] and not loop.orelse and isinstance(loop.iter, ast.Name | ast.Attribute):
        code = draft.code
        item, every = code.text(loop.target), code.text(loop.iter)
        draft.rewrite(loop, f"{every} = [{code.text(statement)} for {item} in {every}]")
