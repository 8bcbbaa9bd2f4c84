"""Refusals: edits that cannot work, or would do harm, in any program; nothing is run to know it."""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from devwidget.records.finding import Edit, Fix
from devwidget.records.syntax import Function, inner_statements, is_inplace, targets_of
from devwidget.records.trace import Fault
from devwidget.rules.edits.devices import goes_to
from devwidget.rules.edits.source_file import Code, code_of, edited_code, keyword_of, names_in, root_of

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
        if _is_generated(file) or _is_wrong(file, [edit for edit in fix.edits if edit.file == file], fault):
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
    lines = tuple(linecache.getlines(file))
    rows = [line.rstrip("\n") for line in lines]
    if not lines or any(edit.last >= edit.first and "\n".join(rows[edit.first - 1 : edit.last]) != edit.was for edit in edits):
        return False
    old, new = code_of(file, lines), edited_code(file, rows, edits)
    if old is None or new is None:
        return False
    if ast.dump(old.tree) == ast.dump(new.tree):
        return True
    known = _dumps(old.tree)
    for statement in itertools.islice(_new_statements(new.tree, known), _HIGHEST):
        added = [node for node in new.parts(statement) if isinstance(node, ast.expr) and ast.dump(node) not in known]
        written = _Written(new, statement, tuple(added), fault)
        if any(objects(written) for objects in _OBJECTIONS):
            return True
    return False


def _asks_what_has_no_device(written: _Written) -> bool:
    code, statement = written.code, written.statement
    return any(_has_no_device(code, statement, receiver) for receiver in _receivers(written.added))


def _has_no_device(code: Code, statement: ast.stmt, receiver: ast.expr) -> bool:
    """Whether it is an object without `.to`; of a variable, whether every assignment above shows it."""
    if not isinstance(receiver, ast.Name):
        return _is_no_tensor(code, receiver)
    scope = code.scope(statement)
    arguments = set[str]()
    if isinstance(scope, Function):
        arguments = {each.arg for each in ast.walk(scope.args) if isinstance(each, ast.arg)}
    if receiver.id in arguments | code.local_names(receiver):
        return False
    assignments = [node for node in ast.walk(scope) if isinstance(node, ast.Assign) and node.lineno < statement.lineno]
    own = [node for node in assignments if receiver.id in map(ast.unparse, node.targets)]
    values = [node.value for node in own if code.scope(node) is scope]
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
    right = {operand.expression for operand in fault.operands if not operand.stray}
    strays = (operand for operand in fault.operands if operand.stray and operand.argument != "generator")
    wrong = {operand.expression for operand in strays} - right - {""}
    for node in written.added:
        match node:
            case ast.Attribute(value=value, attr="device") if ast.unparse(value) in wrong:
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
        if isinstance(loop, ast.For) and name in {node.id for node in names_in(loop.target)}:
            below = (node for node in names_in(loop) if node.id == name and node.lineno > written.statement.lineno)
            return any(written.code.is_written(node) for node in below)
    return False


def _is_sent_back(written: _Written) -> bool:
    """What the statement assigns is moved back below it in the function: `table = table.to("cpu")`."""
    names = {ast.unparse(target) for target in targets_of(written.statement)}
    if written.fault is None or not names:
        return False
    wrong = {operand.device for operand in written.fault.operands if operand.stray}
    last = written.statement.end_lineno or written.statement.lineno
    for node in ast.walk(written.code.scope(written.statement)):
        match node:
            case ast.Call(func=ast.Attribute(value=moved)) if node.lineno > last and ast.unparse(moved) in names:
                if any(goes_to(node, device) for device in wrong):
                    return True
    return False


def _moves_in_a_worker(written: _Written) -> bool:
    """In `__getitem__` of a data set, or in the function that collates its samples, which use no GPU."""
    code = written.code
    function = next((each for each in code.around(written.statement) if isinstance(each, Function)), None)
    names_device = any(isinstance(node, ast.Call) and keyword_of(node, "device") for node in written.added)
    if function is None or not (names_device or any(_receivers(written.added))):
        return False
    owner = code.owner(function)
    is_of_dataset = owner is not None and any("Dataset" in ast.unparse(base) for base in owner.bases)
    if function.name in ("collate", "collate_fn") or (function.name in IN_WORKERS and is_of_dataset):
        return True
    passed = (node.value for node in ast.walk(code.tree) if isinstance(node, ast.keyword) and node.arg in _OF_WORKERS)
    return any(root_of(ast.unparse(each)) == function.name for each in passed)


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
        method = node.func if isinstance(node, ast.Call) else node
        if isinstance(method, ast.Attribute) and method.attr in ("to", "cuda", "cpu", "device"):
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
    nodes = list(ast.walk(tree))
    statements = [_own_dump(node) for node in nodes if isinstance(node, ast.stmt)]
    return frozenset(statements).union(ast.dump(node) for node in nodes if isinstance(node, ast.expr | ast.stmt))


def _own_dump(statement: ast.stmt) -> str:
    parts = [type(statement).__name__]
    for name, value in ast.iter_fields(statement):
        if name not in ("body", "orelse", "finalbody", "handlers"):
            values = value if isinstance(value, list) else [value]
            parts += [name, *(ast.dump(each) if isinstance(each, ast.AST) else repr(each) for each in values)]
    return " ".join(parts)


def _is_generated(file: str) -> bool:
    """A file in the temporary folder that is neither the program nor can be imported by name: a library wrote it there."""
    folder = os.path.dirname(os.path.realpath(file))
    if folder != os.path.realpath(tempfile.gettempdir()) or not file.endswith(".py"):
        return False
    program = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    return folder not in map(os.path.realpath, sys.path) and os.path.realpath(program) != os.path.realpath(file)
