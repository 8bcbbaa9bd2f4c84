"""Refusals: edits that cannot work, or would do harm, in any program; nothing is run to know it."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from devwidget.records.finding import Edit, Fix
from devwidget.records.syntax import (
    Function,
    argument_names,
    inner_statements,
    is_inplace,
    names_in,
    nodes_in,
    targets_of,
    uses_of,
)
from devwidget.records.trace import Fault
from devwidget.rules.edits.devices import goes_to
from devwidget.rules.edits.source_file import Code, code_of, edited_code, keyword_of, root_of

_MAKES_ARRAYS = ("np.", "numpy.")
_NUMBERS = ("float", "int", "bool", "str", "len", "list", "dict", "tuple")
_READS = (".item", ".tolist", ".numpy")
_HAVE_DEVICES = ("to", "device", "cpu", "cuda", "__getattr__")
IN_WORKERS = ("__getitem__", "__getitems__", "collate", "collate_fn")
_OF_WORKERS = ("collate_fn", "worker_init_fn")
_HIGHEST = 20
"""Statements of an edit beyond which it is not looked at: no candidate writes as many."""


def refused(fix: Fix, fault: Fault | None = None) -> bool:
    """Whether an edit is not offered.

    Args:
        fault: the fault to fix. No device may be read from its misplaced tensors.
    """
    for file in {edit.file for edit in fix.edits}:
        edits = [edit for edit in fix.edits if edit.file == file]
        if _is_generated(file) or _is_wrong(file, edits, fault):
            return True
    return False


@dataclass(frozen=True, eq=False)
class _Written:
    """A statement that an edit has written or changed.

    Attributes:
        code: the file after the edit.
        added: the expressions of the statement that the old file has nowhere.
    """

    code: Code
    statement: ast.stmt
    added: tuple[ast.expr, ...]
    fault: Fault | None


def _is_wrong(file: str, edits: list[Edit], fault: Fault | None) -> bool:
    """Of a file that is not at hand as the edits know it nothing can be said."""
    old = code_of(file, tuple(linecache.getlines(file)))
    if old is None or any(_is_outdated(old, edit) for edit in edits):
        return False
    new = edited_code(file, old.rows, edits)
    if new is None:
        return False
    if ast.dump(old.tree) == ast.dump(new.tree):
        return True
    known = _dumps(old.tree)
    statements = list(_new_statements(new.tree, known))
    for statement in statements[:_HIGHEST]:
        written = _Written(new, statement, _added(new, statement, known), fault)
        if any(objects(written) for objects in _OBJECTIONS):
            return True
    return False


def _is_outdated(code: Code, edit: Edit) -> bool:
    """Whether the lines that an edit replaces are others now."""
    now = "\n".join(code.rows[edit.first - 1 : edit.last])
    return edit.last >= edit.first and now != edit.was


def _added(code: Code, statement: ast.stmt, known: frozenset[str]) -> tuple[ast.expr, ...]:
    found = []
    for node in code.parts(statement):
        if isinstance(node, ast.expr) and ast.dump(node) not in known:
            found.append(node)
    return tuple(found)


def _asks_what_has_no_device(written: _Written) -> bool:
    code, statement = written.code, written.statement
    return any(_has_no_device(code, statement, receiver) for receiver in _receivers(written.added))


def _has_no_device(code: Code, statement: ast.stmt, receiver: ast.expr) -> bool:
    """Whether it is an object without `.to`; of a variable, whether every assignment above shows it."""
    if not isinstance(receiver, ast.Name):
        return _is_no_tensor(code, receiver)
    scope = code.scope(statement)
    if receiver.id in argument_names(scope) | code.local_names(receiver):
        return False
    values = []
    for node in nodes_in(scope, ast.Assign):
        is_above = node.lineno < statement.lineno and code.scope(node) is scope
        if is_above and receiver.id in map(ast.unparse, node.targets):
            values.append(node.value)
    return bool(values) and all(_is_no_tensor(code, value) for value in values)


def _is_no_tensor(code: Code, value: ast.expr) -> bool:
    """Whether an expression is seen to be an object without a `.to`."""
    match value:
        case ast.Constant(value=constant):
            return constant is not None
        case ast.Lambda() | ast.List() | ast.Dict() | ast.Set() | ast.Tuple() | ast.ListComp() | ast.DictComp() | ast.SetComp():
            return True
        case ast.Call():
            return _returns_no_tensor(code, ast.unparse(value.func))
    return False


def _returns_no_tensor(code: Code, called: str) -> bool:
    """Whether it is a function of numpy or of numbers, a parameter, whose copy would be none, or a class without `to`."""
    if called.startswith(_MAKES_ARRAYS) or called in _NUMBERS or called.endswith((*_READS, "Parameter")):
        return True
    for each in code.tree.body:
        if isinstance(each, ast.ClassDef) and each.name == called and not each.bases:
            methods = {member.name for member in each.body if isinstance(member, Function)}
            return methods.isdisjoint(_HAVE_DEVICES)
    return False


def _reads_device_of_stray(written: _Written) -> bool:
    """Where a kernel is missing, or dtypes do not mix, tensors are on the intended device."""
    fault = written.fault
    if fault is None or fault.what in ("kernel", "dtype", "promotion") or is_inplace(fault.call):  # what is written stays
        return False
    right, wrong = {""}, set[str]()
    for operand in fault.operands:
        if not operand.stray:
            right.add(operand.expression)
        elif operand.argument != "generator":
            wrong.add(operand.expression)
    for node in written.added:
        match node:
            case ast.Attribute(value=value, attr="device") if ast.unparse(value) in wrong - right:
                alike = written.code.alike(written.statement, ast.unparse(value))
                if not any(map(written.code.is_written, alike)):
                    return True
    return False


def _loses_writes(written: _Written) -> bool:
    """`kept = kept.to(device)` of a variable that a loop over a container binds, and that is written in place below."""
    match written.statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(value=ast.Name(id=moved)))):
            if name != moved:
                return False
        case _:
            return False
    for loop in written.code.around(written.statement):
        if isinstance(loop, ast.For) and name in names_in(loop.target):
            below = [node for node in uses_of(loop, name) if node.lineno > written.statement.lineno]
            return any(map(written.code.is_written, below))
    return False


def _is_sent_back(written: _Written) -> bool:
    """What the statement assigns is moved back below it in the function: `table = table.to("cpu")`."""
    names = {ast.unparse(target) for target in targets_of(written.statement)}
    if written.fault is None or not names:
        return False
    wrong = {operand.device for operand in written.fault.operands if operand.stray}
    last = written.statement.end_lineno or written.statement.lineno
    for call in nodes_in(written.code.scope(written.statement), ast.Call):
        is_below = call.lineno > last and isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in names
        if is_below and any(goes_to(call, device) for device in wrong):
            return True
    return False


def _moves_in_a_worker(written: _Written) -> bool:
    """In `__getitem__` of a data set, or in the function that collates its samples, which use no GPU."""
    code = written.code
    function = code.function(written.statement)
    names_device = any(isinstance(node, ast.Call) and keyword_of(node, "device") for node in written.added)
    if function is None or not (names_device or any(_receivers(written.added))):
        return False
    owner = code.owner(function)
    is_of_dataset = owner is not None and any("Dataset" in ast.unparse(base) for base in owner.bases)
    if function.name in ("collate", "collate_fn") or (function.name in IN_WORKERS and is_of_dataset):
        return True
    for keyword in nodes_in(code.tree, ast.keyword):
        if keyword.arg in _OF_WORKERS and root_of(ast.unparse(keyword.value)) == function.name:
            return True
    return False


_OBJECTIONS: tuple[Callable[[_Written], bool], ...] = (
    _asks_what_has_no_device,
    _reads_device_of_stray,
    _loses_writes,
    _is_sent_back,
    _moves_in_a_worker,
)


def _receivers(nodes: Iterable[ast.expr]) -> Iterator[ast.expr]:
    """`x` of `x.to(...)`, `x.cuda()` and `x.device`."""
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute() as method) | (ast.Attribute() as method):
                if method.attr in ("to", "cuda", "cpu", "device"):
                    yield method.value


def _new_statements(node: ast.AST, known: frozenset[str]) -> Iterator[ast.stmt]:
    """Yield the statements in a node that the old file does not have, also those in compound ones."""
    for each in inner_statements(node):
        if ast.dump(each) not in known:
            if _own_dump(each) not in known:
                yield each
            yield from _new_statements(each, known)


@functools.lru_cache(maxsize=4)  # a file before its edits is asked for each of them; each keeps a syntax tree
def _dumps(tree: ast.AST) -> frozenset[str]:
    """The dumps of all expressions and statements, of these also without the bodies of compound ones."""
    statements = nodes_in(tree, ast.stmt)
    return frozenset([*map(_own_dump, statements), *map(ast.dump, statements), *map(ast.dump, nodes_in(tree, ast.expr))])


def _own_dump(statement: ast.stmt) -> str:
    parts = [type(statement).__name__]
    for name, value in ast.iter_fields(statement):
        if name in ("body", "orelse", "finalbody", "handlers"):
            continue
        parts.append(name)
        if not isinstance(value, list):
            value = [value]
        for each in value:
            if isinstance(each, ast.AST):
                parts.append(ast.dump(each))
            else:
                parts.append(repr(each))
    return " ".join(parts)


def _is_generated(file: str) -> bool:
    """A file in the temporary folder that is neither the program nor can be imported by name: a library wrote it there."""
    folder = os.path.dirname(os.path.realpath(file))
    if folder != os.path.realpath(tempfile.gettempdir()) or not file.endswith(".py"):
        return False
    program = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    return folder not in map(os.path.realpath, sys.path) and os.path.realpath(program) != os.path.realpath(file)
