"""Fix tensors that a program collects in a list, to plot or save them, at the line that fills the list."""

from __future__ import annotations

import ast

from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.syntax import parsed_expression
from devwidget.rules.edits.case import Case
from devwidget.rules.edits.draft import Draft, fix
from devwidget.rules.edits.source_file import Code, code_at

_READERS = ("np", "numpy", "plt", "print", "len", "float", "pd")
"""What uses numbers as it uses tensors, by the root of its name."""


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
    wants_tensors = _wants_tensors(code, name) or _wants_tensors(used[0], name)
    if stray.shape or wants_tensors or _calls_method(case):
        text = ".detach().cpu()" if stray.requires_grad else ".cpu()"
    else:
        text = ".item()"
    if stray.requires_grad and (_goes_backward(code, name) or _goes_backward(used[0], name)):
        return None
    draft = Draft(code)
    draft.append(item, text)
    return fix(Message("keep a copy on the CPU where the list is filled"), draft)


def _calls_method(case: Case) -> bool:
    """Whether the failing line calls a method of the tensor: a number has no `numpy`."""
    call = parsed_expression(case.fault.expression)
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == case.fault.call


def _wants_tensors(code: Code, name: str) -> bool:
    """Whether a file passes the list to torch, or reads an attribute of its items."""
    for node in _uses(code, name):
        outer = code.parents.get(node)
        match outer:
            case ast.Call(func=function) if node in outer.args:
                if ast.unparse(function).split(".")[0] not in _READERS:
                    return True
            case ast.For() | ast.comprehension():
                return True
            case ast.Subscript():
                if isinstance(code.parents.get(outer), ast.Attribute):
                    return True
    return False


def _goes_backward(code: Code, name: str) -> bool:
    """Whether a statement computes with the list and calls `backward`: it needs the graphs of its items."""
    for node in _uses(code, name):
        statement = code.statement_of(node)
        text = ast.unparse(statement) if statement is not None else ""
        if "backward" in text:
            return True
        computed = [ast.unparse(target) for target in getattr(statement, "targets", ())]
        if any(f"{each}.backward" in "\n".join(code.rows) for each in computed):
            return True
    return False


def _uses(code: Code, name: str) -> list[ast.expr]:
    """Where a file reads the list, other than to append to it."""
    found: list[ast.expr] = []
    for node in ast.walk(code.tree):
        if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript) or ast.unparse(node) != name:
            continue
        if isinstance(node.ctx, ast.Load) and getattr(code.parents.get(node), "attr", "") != "append":
            found.append(node)
    return found
