"""Edits about dtypes: casts, autocast regions, and what must not run in them."""

from __future__ import annotations

import ast

from devwidget.records.finding import Fix
from devwidget.records.syntax import parsed_expression
from devwidget.records.trace import Fault
from devwidget.rules.edits.draft import Draft, fix
from devwidget.rules.edits.source_file import Code, code_of_site, names_in, own_lines

_CASTS = frozenset({"half", "bfloat16"})
_LOW = frozenset({"torch.float16", "torch.half", "torch.bfloat16"})


def without_cast(fault: Fault, summary: str) -> Fix | None:
    """Drop the cast to low precision of a variable that only the failing line reads: `angles = table.to(dtype)`."""
    births = {operand.birth for operand in fault.operands if operand.stray}
    birth = next(iter(births), None)
    if len(births) != 1 or birth is None or fault.site is None:
        return None
    code = code_of_site(birth)
    statement = code.statement(birth.line) if code is not None else None
    if code is None or birth.file != fault.site.file or not isinstance(statement, ast.Assign):
        return None
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as cast) if _is_cast(cast):
            if _is_read_alone(fault, name) and _is_read_only_at(code, statement, name, fault.site.line):
                draft = Draft(code)
                draft.drop_method(cast)
                return fix(summary, draft)
    return None


def _is_cast(call: ast.Call) -> bool:
    """Whether a call casts to low precision, or to a dtype in a variable, and does nothing else."""
    match call:
        case ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[]):
            return name in _CASTS
        case ast.Call(func=ast.Attribute(attr="to" | "type"), args=[dtype], keywords=[]):
            text = ast.unparse(dtype)
        case ast.Call(func=ast.Attribute(attr="to"), args=[], keywords=[ast.keyword(arg="dtype", value=dtype)]):
            text = ast.unparse(dtype)
        case _:
            return False
    return text in _LOW or text.rpartition(".")[2].endswith("dtype")


def _is_read_alone(fault: Fault, name: str) -> bool:
    """Whether the operands are computed of one variable: another one may have been cast to go with it."""
    nodes = [parsed_expression(operand.source) for operand in fault.operands if operand.stray and operand.source]
    return all(each.id in (name, "torch") for node in nodes if node is not None for each in names_in(node))


def _is_read_only_at(code: Code, statement: ast.stmt, name: str, line: int) -> bool:
    """Whether the function around an assignment reads the variable only in the statement at another line."""
    scope, reader = code.scope(statement), code.statement(line)
    if reader is None or code.scope(reader) is not scope or isinstance(scope, ast.Module):
        return False
    lines = own_lines(reader)
    reads = [node for node in names_in(scope) if node.id == name and isinstance(node.ctx, ast.Load)]
    return all(node.lineno in lines or node in [*ast.walk(statement)] for node in reads)
