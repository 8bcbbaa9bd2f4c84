"""Modules in the wrong place, or not registered: edits of the lines that build them."""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Iterable, Iterator, Sequence

from devwidget.records.device import PLACING_METHODS
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import cell_label, cells
from devwidget.records.syntax import Function, arguments_in, builds, calls_named, name_of_called, targets_of
from devwidget.records.trace import Fault, Held
from devwidget.rules.edits.case import Case
from devwidget.rules.edits.devices import goes_to, written_device
from devwidget.rules.edits.draft import Draft, fix
from devwidget.rules.edits.source_file import Code, calls_in, code_at, code_of

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
    statement = line[0].statement_of(line[1]) if line is not None else None
    if line is None or statement is None:
        return None
    code, call = line
    if case.fault.target is None or any(goes_to(each, case.fault.target) for each in calls_in(call)):
        return None
    draft = Draft(code)
    draft.append(call, f".to({written_device(code, statement, case.fault.target)})")
    return fix(Message("move it to the device of its inputs where it is built"), draft)


def _is_empty_container(node: ast.expr) -> bool:
    """Whether it is an empty container of torch, whose modules another line builds: `nn.ModuleDict()`."""
    return isinstance(node, ast.Call) and not arguments_in(node) and name_of_called(node) in _CONTAINERS


def _files(fault: Fault, first: Code) -> list[Code]:
    """Return the files in the fault, the one of the creation site first: the class may be in another file than its use."""
    sites = [fault.site, fault.birth, *(site for o in fault.operands for site in (o.birth, o.given.site if o.given else None))]
    sites += [o.held.went for o in fault.operands if o.held is not None]
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
    return any(name in full.split(".") for full, _ in _imports(ast.walk(code.tree)))


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
    calls = [(code, n) for code in files for n in calls_named(ast.walk(code.tree), name)]
    outside = [(code, n) for code, n in calls if getattr(code.owner(n), "name", "") != name]
    left = [(code, n) for code, n in outside if not _is_moved(code, n)]
    for some in (left, outside):
        if len(some) == 1 and _is_value(*some[0]):
            code, node = some[0]
            return code, _moved_already(code, node)
    return None


def _is_moved(code: Code, node: ast.expr) -> bool:
    """Whether the line that builds a module, or another that names it, moves it."""
    within, name = calls_in(_moved_already(code, node)), _name_of(code, node)
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
    return imported_as(code, f"torch.nn.{name}") or f"{'torch.nn' if imported_as(code, 'torch') else 'nn'}.{name}"


def imported_as(code: Code, full: str) -> str:
    """How the file writes what it imports at top level: `nn.Linear`, `Linear` for `torch.nn.Linear`; "" if it does not."""
    package, _, name = full.rpartition(".")
    known = {found: alias.asname or alias.name for found, alias in _imports(code.tree.body)}
    if full in known:
        return known[full]
    return f"{known[package]}.{name}" if package in known else ""


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.alias]]:
    for node in nodes:
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            yield (f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name), alias


def pass_device(case: Case) -> Fix | None:
    """`Window(8)` becomes `Window(8, device="cuda:0")`, if it is the one call that omits the device."""
    at, birth, site = code_at(case.stray.birth), case.stray.birth, case.fault.site
    if at is None or birth is None or site is None or not case.literal:
        return None
    code, statement = at
    function, owner = code.scope(statement), code.owner(statement)
    parameter = _defaulted_device(function, statement) if isinstance(function, Function) else ""
    if not parameter or not isinstance(function, Function):
        return None
    name = owner.name if owner is not None and function.name == "__init__" else function.name
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args) if argument.arg != "self"]
    most = names.index(parameter) if parameter in names else len(names)
    files = dict.fromkeys([birth.file, site.file, *(cells() if cell_label(birth.file) else ())])
    calls = [(each, call) for file in files for each, call in _calls_of(file, name) if len(call.args) <= most]
    left = [(each, call) for each, call in calls if not {parameter, None} & {keyword.arg for keyword in call.keywords}]
    called_in = left[0][0].statement_of(left[0][1]) if len(left) == 1 else None
    if called_in is None:
        return None
    where, call = left[0]
    draft = Draft(where)
    draft.keyword(call, parameter, written_device(where, called_in, case.fault.target))
    return fix(Message("pass the device where it is called"), draft)


def _defaulted_device(function: Function, statement: ast.stmt) -> str:
    """Return the parameter that a call of the statement takes its device from, if its default is None or the CPU."""
    asked = [node.value for node in ast.walk(statement) if isinstance(node, ast.keyword) and node.arg == "device"]
    plain = [*function.args.posonlyargs, *function.args.args]
    last_ones = zip(plain[::-1], function.args.defaults[::-1], strict=False)
    for argument, default in (*last_ones, *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)):
        is_host = default is not None and ast.unparse(default) in ("None", "'cpu'", "torch.device('cpu')")
        if is_host and any(ast.unparse(each) == argument.arg for each in asked):
            return argument.arg
    return ""


def _calls_of(file: str, name: str) -> Iterator[tuple[Code, ast.Call]]:
    code = code_of(file, tuple(linecache.getlines(file)))
    if code is not None:
        yield from ((code, call) for call in calls_named(ast.walk(code.tree), name))
