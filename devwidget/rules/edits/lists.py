"""Fix tensors that a program collects in a list, to plot or save them, at the line that fills the list."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.syntax import targets_of
from devwidget.rules.edits.case import Case
from devwidget.rules.edits.draft import Draft, fix
from devwidget.rules.edits.source_file import Code, code_at, root_of

_READERS = ("np", "numpy", "plt", "print", "len", "float", "pd")
"""What takes numbers as it takes tensors, by the root of its name."""


def collect_on_host(case: Case) -> Fix | None:
    """`losses.append(loss)` becomes `losses.append(loss.item())` if all that the program does with the list allows it."""
    stray, used = case.stray, code_at(case.fault.site, case.fault.expression)
    at = code_at(stray.listed)
    if at is None or used is None or not case.is_wanted_on_host:
        return None
    code, statement = at
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner), args=[item])):
            name = ast.unparse(owner)
        case _:
            return None
    uses = [(each, node) for each in {code, used[0]} for node in _uses(each, name)]
    if stray.requires_grad and any(_goes_backward(*use) for use in uses):
        return None
    if not stray.shape and all(_reads_numbers(*use) for use in uses):
        text = ".item()"
    else:
        text = ".detach().cpu()" if stray.requires_grad else ".cpu()"
    draft = Draft(code)
    draft.append(item, text)
    return fix(Message("keep a copy on the CPU where the list is filled"), draft)


def _reads_numbers(code: Code, node: ast.expr) -> bool:
    """Whether a use passes the whole list to what takes numbers as it takes tensors."""
    call = code.parents.get(node)
    return isinstance(call, ast.Call) and node in call.args and root_of(ast.unparse(call.func)) in _READERS


def _goes_backward(code: Code, node: ast.expr) -> bool:
    """Whether the statement of a use calls `backward`, or another one does on what it assigns: the items need their graphs."""
    statement = code.statement_of(node)
    if statement is None or "backward" in code.text(statement):
        return statement is not None
    computed = [f"{ast.unparse(target)}.backward" for target in targets_of(statement)]
    return any(each in row for each in computed for row in code.rows)


def _uses(code: Code, name: str) -> Sequence[ast.expr]:
    """Where a file reads the list, other than to append to it."""
    nodes = [node for node in ast.walk(code.tree) if isinstance(node, ast.Name | ast.Attribute | ast.Subscript)]
    read = [node for node in nodes if isinstance(node.ctx, ast.Load) and ast.unparse(node) == name]
    return [node for node in read if getattr(code.parents.get(node), "attr", "") != "append"]
