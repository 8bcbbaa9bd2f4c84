"""A move where a stray tensor came in as an argument, for one that was handed on or computed with before it failed."""

from __future__ import annotations

import ast

from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.trace import Operand
from devwidget.rules.repairs.code import Code, Function, code_at
from devwidget.rules.repairs.edits import Draft, fix


def on_entry(stray: Operand) -> Fix | None:
    """`As = As.to(x.device)` at the head of the function that was given both, or after what last gave `As` a value there."""
    given = stray.given
    at = code_at(given.site) if given is not None else None
    if given is None or at is None:
        return None
    code, statement = at
    function = code.scope(statement)
    if not isinstance(function, Function) or stray.expression == given.name:  # the failing line can move it as well
        return None
    around = [statement, *code.around(statement)]
    inside = next(index for index, each in enumerate(function.body) if each in around)
    before, rest = function.body[:inside], function.body[inside:]
    first = next(each for each in function.body if not _is_docstring(each))
    last = next((each for each in reversed(before) if _stores(code, each, given.name)), None)
    changes = any(_stores(code, each, given.name) for each in rest) or any(
        _stores(code, each, given.beside) for each in function.body
    )
    if changes or given.beside not in code.bound(first) or (last is None and given.name not in code.bound(first)):
        return None
    draft, move = Draft(code), f"{given.name} = {given.name}.to({given.beside}.device)"
    if last is None:
        draft.before(first, move)
    else:
        draft.after(last, move)
    return fix(Message("move it where it comes in"), draft)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _stores(code: Code, statement: ast.stmt, name: str) -> bool:
    """Whether a statement gives a variable of its own function a value."""
    stored = (node for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id == name)
    return any(isinstance(node.ctx, ast.Store) and code.scope(node) is code.scope(statement) for node in stored)
