"""Modules that were moved away in place after they had been where they are used: a copy of them is moved instead."""

from __future__ import annotations

import ast

from devwidget.records.device import PLACING_METHODS, DeviceId
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.syntax import argument_names, calls_named, targets_of, uses_of
from devwidget.records.trace import Fault, Trace
from devwidget.rules.edits.devices import written_device
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.edits.source_file import Code, imported_as, root_of


def is_moved_away(trace: Trace, site: Site | None, home: DeviceId | None) -> bool:
    """Whether a line took tensors from where they are wanted."""
    if site is None:
        return False
    asked = [each for each in trace.moves if (each.site, each.cause) == (site, "explicit")]
    return any(each.source == home and each.target != home for each in asked)


def copy_moved(site: Site | None, model: str) -> Fix | None:
    """`model.cpu().state_dict()` becomes `copy.deepcopy(model).cpu().state_dict()`.

    Args:
        site: the line that moves the module.
        model: how the program calls the one that must stay.
    """

    def change(draft: Draft, statement: ast.stmt) -> None:
        code = draft.code
        match list(calls_named(code.parts(statement), *PLACING_METHODS)):
            case [ast.Call(func=ast.Attribute(value=moved)) as move]:
                name, is_dropped = code.text(moved), isinstance(statement, ast.Expr) and statement.value is move
                renamed = is_dropped or name in map(code.text, targets_of(statement))  # it stands for the copy from here on
                if not renamed or _is_own_name(code, statement, moved, model):
                    draft.replace(moved, f"{name} = " * is_dropped + f"{_spelled(draft)}({name})")

    return mended(site, Message("`Module.to` moves in place: move a copy, and leave the model where it is"), change)


def move_back(fault: Fault) -> Fix | None:
    """`model.to(device)` above the statement of the top level that uses the model."""

    def change(draft: Draft, statement: ast.stmt) -> None:
        code = draft.code
        if not isinstance(code.scope(statement), ast.Module) or not fault.model_name.isidentifier():
            return
        outer = next(each for each in (statement, *code.around(statement)) if each in code.tree.body)
        if isinstance(outer, ast.stmt):
            draft.insert_above(outer, f"{fault.model_name}.to({written_device(code, outer, fault.target)})")

    return mended(fault.site, Message("move it back before it is used"), change)


def _is_own_name(code: Code, statement: ast.stmt, moved: ast.expr, model: str) -> bool:
    """Whether a name may stand for a copy afterwards: a variable of that function, or none of the model's, that is not run."""
    scope = code.scope(statement)
    if not isinstance(moved, ast.Name) or isinstance(scope, ast.ClassDef):
        return False
    if isinstance(scope, ast.Module) and moved.id == root_of(model):
        return False
    same = uses_of(scope, moved.id)
    is_own = moved.id in argument_names(scope) or any(isinstance(node.ctx, ast.Store) for node in same)
    return is_own and not any(_runs(code, node) for node in same)


def _runs(code: Code, name: ast.Name) -> bool:
    """Whether a module is called by its name, or handed to what may call it; what saves it does not."""
    call = code.parents.get(name)
    if not isinstance(call, ast.Call):
        return False
    return call.func is name or not ast.unparse(call.func).endswith("save")


def _spelled(draft: Draft) -> str:
    """How the file calls `copy.deepcopy`, which is imported where it is not yet."""
    known = imported_as(draft.code, "copy.deepcopy")
    if not known:
        draft.insert_above(_first(draft.code.tree), "import copy")
    return known or "copy.deepcopy"


def _first(tree: ast.Module) -> ast.stmt:
    """The first import, else the first statement: below a docstring and the imports from `__future__`."""
    first: ast.stmt | None = None
    for node in tree.body:
        match node:
            case ast.ImportFrom(module="__future__") | ast.Expr():
                continue
            case ast.Import() | ast.ImportFrom():
                return node
        first = first or node
    return first or tree.body[-1]
