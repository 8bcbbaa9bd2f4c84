"""Refusals: edits that can be known not to work, or not to be wanted, before anybody runs them."""

from __future__ import annotations

import ast
import builtins
import functools
import itertools
import linecache
import os
import sys
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from devwidget.records.finding import Edit, Fix
from devwidget.records.syntax import inner_statements, targets_of
from devwidget.records.trace import Fault
from devwidget.rules.edits.source_file import Code, Function, code_of, edited_code, root_of

_MAKES_ARRAYS = ("np.", "numpy.")
IN_WORKERS = ("__getitem__", "__getitems__", "collate", "collate_fn")
_OF_WORKERS = ("collate_fn", "worker_init_fn")
_HIGHEST = 20
"""Statements of an edit beyond which its names are not looked up: no repair writes as many."""


def refused(fix: Fix, fault: Fault | None = None) -> str:
    """Why an edit is not offered; "" for one that may work.

    Args:
        fault: what it is to mend: its strays are where no device may be read from.
    """
    files = dict.fromkeys(edit.file for edit in fix.edits)
    for file in files:
        if _is_generated(file):
            return "it edits a file that a library wrote"
        change = _change(file, [edit for edit in fix.edits if edit.file == file])
        if change is not None and (why := _why_not(change, fault)):
            return why
    return ""


@dataclass(frozen=True, eq=False)
class _Changed:
    """A file before and after the edits of one fix, and the statements that only the second has."""

    old: Code
    new: Code
    written: tuple[ast.stmt, ...]


def _change(file: str, edits: list[Edit]) -> _Changed | None:
    """None for a file that is not at hand as the edits know it: nothing can be said of it."""
    lines = tuple(linecache.getlines(file))
    rows = [line.rstrip("\n") for line in lines]
    if not lines or any(edit.last >= edit.first and "\n".join(rows[edit.first - 1 : edit.last]) != edit.was for edit in edits):
        return None
    old, new = code_of(file, lines), edited_code(file, rows, edits)
    if old is None or new is None:
        return None
    before, rewritten = _dumps(old.tree), _list_rewritten(edits)
    written = (each for each in _statements_within(new.tree, rewritten) if _own_dump(each) not in before)
    return _Changed(old, new, tuple(itertools.islice(written, _HIGHEST)))


def _list_rewritten(edits: list[Edit]) -> list[range]:
    """The lines of the new file that edits have written, or stand beside what they took away."""
    found, shift = [], 0
    for edit in sorted(edits, key=lambda each: each.first):
        count = len(edit.new_lines)
        found.append(range(edit.first + shift - 1, edit.first + shift + count + 1))
        shift += count - (edit.last - edit.first + 1)
    return found


def _statements_within(node: ast.AST, lines: list[range]) -> Iterator[ast.stmt]:
    for each in inner_statements(node):
        if _is_within(each, lines):
            yield each
            yield from _statements_within(each, lines)


def _is_within(statement: ast.stmt, lines: list[range]) -> bool:
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    if decorators := getattr(statement, "decorator_list", None):
        first = min(first, decorators[0].lineno)
    return any(first < each.stop and each.start <= last for each in lines)


def _why_not(change: _Changed, fault: Fault | None) -> str:
    if not change.written and ast.dump(change.old.tree) == ast.dump(change.new.tree):
        return "it changes nothing"
    for statement in change.written:
        for why in _objections(change, statement, fault):
            return why
    return ""


def _objections(change: _Changed, statement: ast.stmt, fault: Fault | None) -> Iterator[str]:
    code = change.new
    was = _dumps(change.old.tree, ast.expr)
    added = [node for node in code.parts(statement) if isinstance(node, ast.expr) and ast.dump(node) not in was]
    if late := _unbound(change, statement):
        yield f"`{late}` has no value there yet"
    for node in added:
        receiver = _receiver(node)
        if receiver is not None and (kind := _without_devices(code, statement, receiver)):
            yield f"`{ast.unparse(receiver)}` is {kind}"
        if isinstance(node, ast.Attribute) and node.attr == "device" and fault is not None and _is_stray(fault, node.value):
            yield f"`{ast.unparse(node.value)}` is not where it must be"
    if lost := _loses_writes(code, statement, added):
        yield f"what is written into `{lost}` would not arrive"
    if _is_key_of_this_run(code, statement, added):
        yield "the next run has other keys"
    if _in_worker(code, statement) and any(_receiver(node) is not None or _names_device(node) for node in added):
        yield "workers of a DataLoader use no GPU"


def _own_dump(statement: ast.stmt) -> str:
    """The dump of a statement without the body of a compound one."""
    kept = {
        name: value for name, value in ast.iter_fields(statement) if name not in ("body", "orelse", "finalbody", "handlers")
    }
    return type(statement).__name__ + "".join(
        f"{name}={[_dump(each) for each in value] if isinstance(value, list) else _dump(value)}" for name, value in kept.items()
    )


def _dump(value: object) -> str:
    if isinstance(value, ast.AST):
        return ast.dump(value)
    return repr(value)


@functools.lru_cache(maxsize=4)  # a file before its edits is asked for each of them; each keeps a syntax tree
def _dumps(tree: ast.AST, kind: type[ast.AST] = ast.stmt) -> frozenset[str]:
    found = (node for node in ast.walk(tree) if isinstance(node, kind))
    return frozenset(_own_dump(node) if isinstance(node, ast.stmt) else ast.dump(node) for node in found)


def _receiver(node: ast.expr) -> ast.expr | None:
    """`x` of `x.to(...)`, `x.cuda()` and `x.device`."""
    method = node.func if isinstance(node, ast.Call) else node
    named = isinstance(method, ast.Attribute) and method.attr in ("to", "cuda", "cpu", "device")
    if named and isinstance(method, ast.Attribute):
        return method.value
    return None


def _names_device(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and any(keyword.arg == "device" for keyword in node.keywords)


def _unbound(change: _Changed, statement: ast.stmt) -> str:
    """A name that the edit reads in a statement, and that gets its value only there or further down; ""."""
    code = change.new
    scope = code.scope(statement)
    stores = [n for n in ast.walk(scope) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and code.scope(n) is scope]
    known = _read_where(change, statement)
    for node in code.parts(statement):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or node.id in known:
            continue
        mine = [each for each in stores if each.id == node.id and node.id not in code.local_names(each)]
        if not mine or node.id in code.local_names(node) or node.id in code.bound(statement) or hasattr(builtins, node.id):
            continue
        first = min(each.lineno for each in mine)
        here = [each for each in mine if each.lineno == first]
        if first > statement.lineno or all(code.statement_of(each) is statement for each in here):
            return node.id
    return ""


def _read_where(change: _Changed, statement: ast.stmt) -> set[str]:
    """Names that the same statement read before the edit: they had a value. Lines that the edit inserts push it down."""
    inserted = max(0, len(change.new.rows) - len(change.old.rows))
    for shift in range(inserted + 1):
        there = change.old.statement(statement.lineno - shift)
        if there is not None and _gives_same_targets(there, statement):
            return {n.id for n in change.old.parts(there) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return set()


def _gives_same_targets(one: ast.stmt, other: ast.stmt) -> bool:
    return type(one) is type(other) and [*map(ast.dump, targets_of(one))] == [*map(ast.dump, targets_of(other))]


def _without_devices(code: Code, statement: ast.stmt, receiver: ast.expr) -> str:
    """What an object is that has no `.to`, as far as every line tells that gives its name a value; ""."""
    if isinstance(receiver, ast.Lambda | ast.Constant):
        return "no tensor"
    if isinstance(receiver, ast.Call) and ast.unparse(receiver.func).rpartition(".")[2] == "Parameter":
        return "a parameter, and its copy would be none"
    if isinstance(receiver, ast.Attribute) and receiver.attr == "state" and "scaler" in ast.unparse(receiver.value).lower():
        return "no tensor"
    if not isinstance(receiver, ast.Name) or receiver.id in code.local_names(receiver):
        return ""
    scope = code.scope(statement)
    given = [n for n in ast.walk(scope) if isinstance(n, ast.Assign) and _is_named(n, receiver.id) and code.scope(n) is scope]
    kinds = {_kind(code, each.value) for each in given if each.lineno < statement.lineno}
    if isinstance(scope, Function):
        arguments = {a.arg for a in ast.walk(scope.args) if isinstance(a, ast.arg)}
    else:
        arguments = set()
    if len(kinds) == 1 and receiver.id not in arguments:
        return kinds.pop()
    return ""


def _is_named(statement: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in statement.targets)


def _kind(code: Code, value: ast.expr) -> str:
    """The kind of object without a `.to` that an expression is, if that can be seen."""
    if isinstance(value, ast.Lambda):
        return "a function"
    if isinstance(value, ast.Constant) and value.value is not None:
        return "no tensor"
    if isinstance(value, ast.List | ast.Dict | ast.Set | ast.Tuple | ast.ListComp | ast.DictComp | ast.SetComp):
        return "a container"
    called = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
    if called.startswith(_MAKES_ARRAYS):
        return "a numpy array"
    if called in ("float", "int", "bool", "str", "len", "list", "dict", "tuple") or called.endswith(
        (".item", ".tolist", ".numpy")
    ):
        return "no tensor"
    made = [each for each in code.tree.body if isinstance(each, ast.ClassDef) and each.name == called and not each.bases]
    if len(made) == 1 and not any(_defines_to(each) for each in made[0].body):
        return f"a `{called}`, which has no `to`"
    return ""


def _defines_to(member: ast.stmt) -> bool:
    return isinstance(member, Function) and member.name in ("to", "device", "cpu", "cuda", "__getattr__")


def _is_stray(fault: Fault, node: ast.expr) -> bool:
    """Whether an expression is a tensor of the fault that is in the wrong place, and at no operand that is in the right one.

    Where a kernel is missing, or dtypes do not mix, tensors are where they are meant to be.
    """
    if fault.what in ("kernel", "dtype", "promotion"):
        return False
    text = ast.unparse(node)
    right = {o.expression for o in fault.operands if not o.stray}
    return text in {o.expression for o in fault.operands if o.stray and o.expression} - right and not _writes(fault)


def _writes(fault: Fault) -> bool:
    """What is written in place stays where it is, wherever that should have been."""
    return fault.call.startswith("__i") or (fault.call.endswith("_") and not fault.call.endswith("__"))


def _loses_writes(code: Code, statement: ast.stmt, added: Collection[ast.expr]) -> str:
    """`kept = kept.to(device)` of a variable that a loop over a container binds, and that is written in place below; ""."""
    value = statement.value if isinstance(statement, ast.Assign) and statement.value in added else None
    moved = _receiver(value) if isinstance(value, ast.Call) else None
    name = moved.id if isinstance(moved, ast.Name) and ast.unparse(statement.targets[0]) == moved.id else ""  # type: ignore[attr-defined]
    loop = next((each for each in code.around(statement) if isinstance(each, ast.For) and name in _names(each.target)), None)
    below = (n for n in ast.walk(loop) if getattr(n, "lineno", 0) > statement.lineno) if name and loop is not None else ()
    if any(_writes_into(node, name) for node in below):
        return name
    return ""


def _names(target: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _writes_into(node: ast.AST, name: str) -> bool:
    """`x.add_(...)`, `x += ...`, `x[i] = ...`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        method = node.func.attr
        return root_of(ast.unparse(node.func.value)) == name and method.endswith("_") and not method.startswith("_")
    if isinstance(node, ast.AugAssign):
        return root_of(ast.unparse(node.target)) == name
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and root_of(ast.unparse(node)) == name


def _is_key_of_this_run(code: Code, statement: ast.stmt, added: Collection[ast.expr]) -> bool:
    """`states['a'] = states['a'].to(d)`, where the program itself has `states[key]`; `losses[0] = ...`."""
    for target in targets_of(statement):
        if not isinstance(target, ast.Subscript) or not isinstance(target.slice, ast.Constant):
            continue
        if not any(ast.unparse(node) == ast.unparse(target) for node in added):
            continue
        name = ast.unparse(target.value)
        key = target.slice.value
        if isinstance(key, int) or (_is_keyed_by_variables(code, name) and not _is_key_of_the_program(code, key)):
            return True
    return False


def _is_key_of_the_program(code: Code, key: object) -> bool:
    """Whether the author has written it as the key of a dict: every run has it."""
    keys = (each for node in ast.walk(code.tree) if isinstance(node, ast.Dict) for each in node.keys)
    return any(isinstance(each, ast.Constant) and each.value == key for each in keys)


def _is_keyed_by_variables(code: Code, name: str) -> bool:
    for node in ast.walk(code.tree):
        key = node.slice if isinstance(node, ast.Subscript) and ast.unparse(node.value) == name else None
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (f"{name}.get", f"{name}.setdefault", f"{name}.pop"):
            key = node.args[0] if node.args else None
        if key is not None and not isinstance(key, ast.Constant):
            return True
    return False


def _in_worker(code: Code, statement: ast.stmt) -> bool:
    """In `__getitem__` of a data set, or in the function that collates its samples."""
    function = next((each for each in code.around(statement) if isinstance(each, Function)), None)
    if function is None:
        return False
    owner = code.owner(function)
    if function.name in IN_WORKERS[:2] and owner is not None:
        return any("Dataset" in ast.unparse(base) for base in owner.bases)
    if function.name in IN_WORKERS[2:]:
        return True
    nodes = ast.walk(code.tree) if any(name in row for name in _OF_WORKERS for row in code.rows) else ()
    passed = (node.value for node in nodes if isinstance(node, ast.keyword) and node.arg in _OF_WORKERS)
    return any(root_of(ast.unparse(each)) == function.name for each in passed)


def _is_generated(file: str) -> bool:
    """A file in the temporary folder that is neither the program nor can be imported by name: a library wrote it there."""
    folder = os.path.dirname(os.path.realpath(file))
    if folder != os.path.realpath(tempfile.gettempdir()) or not file.endswith(".py"):
        return False
    program = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    return folder not in map(os.path.realpath, sys.path) and os.path.realpath(program) != os.path.realpath(file)
