"""Modules in the wrong place, or not registered: edits of the lines that build them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.device import PLACING_METHODS
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.trace import Fault, Held, Operand
from devwidget.rules.repairs.code import Code, code_at, targets
from devwidget.rules.repairs.edits import Draft, fix


def where_built(fault: Fault, stray: Operand, held: Held) -> Iterator[Fix | None]:
    """`head = Head(6)` becomes `head = Head(6).to('cuda:0')`: the module that was left behind, or the whole model."""
    at, target = code_at(stray.birth), repr(str(fault.target))
    if at is None:
        return
    code, statement = at
    line = _construction(code, statement, held, stray.birth.function if stray.birth is not None else "", _wanted(fault, held))
    if line is not None:
        draft = Draft(code)
        draft.append(line, f".to({target})")
        yield fix(Message("move it to the device of its inputs where it is built"), draft)


def _wanted(fault: Fault, held: Held) -> str:
    """How the code calls what must move: the model by its name; a part of it has none."""
    return (fault.model_name or "model") if held.left_behind == "" else "?"


def _construction(code: Code, birth: ast.stmt, held: Held, function: str, model: str) -> ast.expr | None:
    """The call that builds the module that is left behind, outside its own class."""
    if held.how == "buffer":
        return None
    scope = code.scope(birth)
    inside = "__init__" in (getattr(scope, "name", ""), function)
    calls = [n for n in ast.walk(code.tree) if isinstance(n, ast.Call) and _called(n) == held.left_class]
    named = [n for n in calls if _name_of(code, n) == model]
    outside = named or [n for n in calls if _is_value(code, n) and getattr(code.owner(n), "name", "") != held.left_class]
    if len(outside) == 1:
        return _moved_already(code, outside[0])
    value = getattr(birth, "value", None)
    return value if not inside and isinstance(value, ast.Call) and len(targets(birth)) == 1 else None


def _name_of(code: Code, node: ast.expr) -> str:
    """`model` of `model = Net().eval()`."""
    statement = code.statement_of(node)
    whole = _moved_already(code, node)
    return ast.unparse(targets(statement)[0]) if isinstance(statement, ast.Assign) and statement.value is whole else ""


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def _is_value(code: Code, node: ast.expr) -> bool:
    """True for a call whose result is assigned, perhaps after `.eval()` and the like."""
    statement = code.statement_of(node)
    whole = _moved_already(code, node)
    return isinstance(statement, ast.Assign) and not isinstance(code.parents.get(whole), ast.Attribute)


_THEMSELVES = PLACING_METHODS | {"eval", "train", "half", "float", "double", "requires_grad_", "apply"}
"""Methods of a module that return the module."""


def _moved_already(code: Code, node: ast.expr) -> ast.expr:
    """The whole chain of calls that a construction begins and that gives the module: `Net().eval()`."""
    whole: ast.expr = node
    for outer in code.around(node):
        if isinstance(outer, ast.Call) and isinstance(outer.func, ast.Attribute) and outer.func.value is whole:
            whole = outer
        elif not (isinstance(outer, ast.Attribute) and outer.value is whole and outer.attr in _THEMSELVES):
            break
    return whole


def spelled(code: Code, name: str) -> str:
    """How the file writes a class of `torch.nn`: `nn.ModuleList`, `torch.nn.ModuleList`, `ModuleList`."""
    known = {alias.asname or alias.name: full for full, alias in _imports(code)}
    for shown, full in known.items():
        if full == f"torch.nn.{name}":
            return shown
    prefix = next((shown for shown, full in known.items() if full == "torch.nn"), "")
    return f"{prefix or 'torch.nn' if prefix or 'torch' in known else 'nn'}.{name}"


def _imports(code: Code) -> Iterator[tuple[str, ast.alias]]:
    for node in ast.walk(code.tree):
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            yield (f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name), alias
