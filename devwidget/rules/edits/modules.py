"""Modules in the wrong place, or not registered: edits of the lines that build them."""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Iterator, Sequence

from devwidget.records.device import PLACING_METHODS
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site, cell_label, cells
from devwidget.records.syntax import (
    Function,
    arguments_in,
    builds,
    calls_named,
    defaults_of,
    name_of_called,
    nodes_in,
    targets_of,
)
from devwidget.records.trace import Fault, Held
from devwidget.rules.edits.case import Case
from devwidget.rules.edits.devices import goes_to, written_device
from devwidget.rules.edits.draft import Draft, fix
from devwidget.rules.edits.source_file import Code, code_at, code_of, imported_as, imports_in

_CONTAINERS = frozenset({"ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"})


def build_there(case: Case, held: Held) -> Fix | None:
    """`head = Head(6)` becomes `head = Head(6).to(device)`: the module that was left behind, or the whole model."""
    at, birth = code_at(case.stray.birth, case.stray.birth_call), case.stray.birth
    if at is None or birth is None:
        return None
    files = _files(case.fault, at[0])
    line = _construction(files, at[1], held, birth.function)
    if line is not None and _is_empty_container(line[1]):  # what was put into it later stays where it is
        line = _built_outside(files, held.owner_class)
    return _move_where_built(case, line)


def _move_where_built(case: Case, line: tuple[Code, ast.expr] | None) -> Fix | None:
    target = case.fault.target
    if line is None or target is None:
        return None
    code, call = line
    statement = code.statement_of(call)
    if statement is None or any(goes_to(each, target) for each in nodes_in(call, ast.Call)):
        return None
    draft = Draft(code)
    draft.append(call, f".to({written_device(code, statement, target)})")
    return fix(Message("move it to the device of its inputs where it is built"), draft)


def _is_empty_container(node: ast.expr) -> bool:
    """Whether it is an empty container of torch, whose modules another line builds: `nn.ModuleDict()`."""
    return isinstance(node, ast.Call) and not arguments_in(node) and name_of_called(node) in _CONTAINERS


def _files(fault: Fault, first: Code) -> list[Code]:
    """Return the files in the fault, the one of the creation site first: the class may be in another file than its use."""
    sites: list[Site | None] = [fault.site, fault.birth]
    for operand in fault.operands:
        sites.append(operand.birth)
        if operand.given is not None:
            sites.append(operand.given.site)
    sites += [operand.held.went for operand in fault.operands if operand.held is not None]
    found = {first.file: first}
    for at in map(code_at, sites):
        if at is not None:
            found.setdefault(at[0].file, at[0])
    program = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    code = code_of(program, tuple(linecache.getlines(program)))
    if code is not None and any(_imports_from(code, each) for each in found.values()):
        found.setdefault(program, code)
    return list(found.values())


def _imports_from(code: Code, other: Code) -> bool:
    name = os.path.splitext(os.path.basename(other.file))[0]
    return any(name in full.split(".") for full in imports_in(ast.walk(code.tree)))


def _construction(files: Sequence[Code], birth: ast.stmt, held: Held, function: str) -> tuple[Code, ast.expr] | None:
    """The call that builds the module that is left behind, outside its own class, and its file."""
    if held.how == "buffer" and held.left_behind is None:
        return None
    at = built_at(held) or _only_construction((files[0], birth), held) or _built_outside(files, held.left_class)
    if at is not None:
        return at
    inside = "__init__" in (getattr(files[0].scope(birth), "name", ""), function)
    value = getattr(birth, "value", None)
    if not inside and isinstance(value, ast.Call) and len(targets_of(birth)) == 1:
        return (files[0], value)
    return None


def built_at(held: Held) -> tuple[Code, ast.expr] | None:
    """The construction that is known to have built it; None where its name is moved: then it was changed afterwards."""
    return _only_construction(code_at(held.built), held)


def _only_construction(at: tuple[Code, ast.stmt] | None, held: Held) -> tuple[Code, ast.expr] | None:
    """The call of a statement that builds the module that is left behind."""
    if at is None:
        return None
    code, statement = at
    calls = [call for call in code.calls(statement) if builds(call, held.left_class)]
    if len(calls) != 1 or _is_empty_container(calls[0]) or _is_moved(code, calls[0]):
        return None
    return code, _moved_already(code, calls[0])


def _built_outside(files: Sequence[Code], name: str) -> tuple[Code, ast.expr] | None:
    """The one construction of a class outside of it; of several the one that no line moves."""
    outside, left = [], []
    for code in files:
        for call in calls_named(ast.walk(code.tree), name):
            if getattr(code.owner(call), "name", "") == name:
                continue
            outside.append((code, call))
            if not _is_moved(code, call):
                left.append((code, call))
    for some in (left, outside):
        if len(some) == 1 and _is_value(*some[0]):
            code, call = some[0]
            return code, _moved_already(code, call)
    return None


def _is_moved(code: Code, node: ast.expr) -> bool:
    """Whether the line that builds a module, or another that names it, moves it."""
    within, name = nodes_in(_moved_already(code, node), ast.Call), _name_of(code, node)
    for call in calls_named(ast.walk(code.tree), *PLACING_METHODS):
        if isinstance(call.func, ast.Attribute) and (call in within or ast.unparse(call.func.value) == name):
            return True
    return False


def _name_of(code: Code, node: ast.expr) -> str:
    """`model` of `model = Net().eval()`."""
    statement = code.statement_of(node)
    whole = _moved_already(code, node)
    if isinstance(statement, ast.Assign) and statement.value is whole:
        return ast.unparse(targets_of(statement)[0])
    return ""


def build_owner_there(case: Case) -> Fix | None:
    """Fix a tensor that a module creates in its `__init__` at the line that builds the module, whose path the fault lacks."""
    stray = case.stray
    at = code_at(stray.birth, stray.birth_call)
    if at is None or not case.literal or (stray.held is not None and stray.held.how not in ("parameter", "buffer")):
        return None
    owner = at[0].owner(at[1])
    is_initialiser = getattr(at[0].scope(at[1]), "name", "") == "__init__"
    if owner is None or not owner.bases or not is_initialiser or not _is_module_state(at[1]):
        return None  # a class of no other is no module, and has no `.to`
    return _move_where_built(case, _built_outside(_files(case.fault, at[0]), owner.name))


def _is_module_state(statement: ast.stmt) -> bool:
    """`self.register_buffer(...)`, `self.layer = nn.Linear(...)`, `self.scale = nn.Parameter(...)`: what `.to` moves."""
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.Call):
        return False
    name = name_of_called(value)
    registers = ast.unparse(value.func) in ("self.register_buffer", "self.register_parameter")
    return registers or (name[:1].isupper() and name not in ("Tensor", "Generator"))


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
    written = imported_as(code, f"torch.nn.{name}")
    if written:
        return written
    if imported_as(code, "torch"):
        return f"torch.nn.{name}"
    return f"nn.{name}"


def pass_device(case: Case) -> Fix | None:
    """`Window(8)` becomes `Window(8, device="cuda:0")`, if it is the one call that omits the device."""
    at, birth, site = code_at(case.stray.birth), case.stray.birth, case.fault.site
    if at is None or birth is None or site is None or not case.literal:
        return None
    code, statement = at
    function, owner = code.scope(statement), code.owner(statement)
    if not isinstance(function, Function):
        return None
    parameter = _defaulted_device(function, statement)
    if not parameter:
        return None
    name = function.name
    if owner is not None and name == "__init__":
        name = owner.name
    files = [birth.file, site.file]
    if cell_label(birth.file):
        files += cells()
    left = list(_calls_without(files, name, function, parameter))
    if len(left) != 1:
        return None
    where, call = left[0]
    called_in = where.statement_of(call)
    if called_in is None:
        return None
    draft = Draft(where)
    draft.keyword(call, parameter, written_device(where, called_in, case.fault.target))
    return fix(Message("pass the device where it is called"), draft)


def _defaulted_device(function: Function, statement: ast.stmt) -> str:
    """Return the parameter that a call of the statement takes its device from, if its default is None or the CPU."""
    asked = {ast.unparse(node.value) for node in nodes_in(statement, ast.keyword) if node.arg == "device"}
    for name, default in defaults_of(function).items():
        if name in asked and ast.unparse(default) in ("None", "'cpu'", "torch.device('cpu')"):
            return name
    return ""


def _calls_without(files: Sequence[str], name: str, function: Function, parameter: str) -> Iterator[tuple[Code, ast.Call]]:
    """Yield the calls of a function, or of the class whose constructor it is, that do not pass one of its parameters."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args) if argument.arg != "self"]
    most = len(names)
    if parameter in names:
        most = names.index(parameter)
    for file in dict.fromkeys(files):
        code = code_of(file, tuple(linecache.getlines(file)))
        if code is None:
            continue
        for call in calls_named(ast.walk(code.tree), name):
            passed = {keyword.arg for keyword in call.keywords}
            if len(call.args) <= most and passed.isdisjoint((parameter, None)):
                yield code, call
