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


def refused(fix: Fix, fault: Fault | None = None) -> str:
    """Why an edit is not offered; "" for one that may work.

    Args:
        fault: the fault to fix. No device may be read from its misplaced tensors.
    """
    for file in dict.fromkeys(edit.file for edit in fix.edits):
        if _is_generated(file):
            return "it edits a file that a library wrote"
        why = _why_not(file, [edit for edit in fix.edits if edit.file == file], fault)
        if why:
            return why
    return ""


@dataclass(frozen=True, eq=False)
class _Written:
    """A statement that an edit has written or changed.

    Attributes:
        old: the file before the edit.
        code: the file after it.
        added: the expressions of the statement that the old file has nowhere.
    """

    old: Code
    code: Code
    statement: ast.stmt
    added: tuple[ast.expr, ...]
    fault: Fault | None


def _why_not(file: str, edits: list[Edit], fault: Fault | None) -> str:
    """Of a file that is not at hand as the edits know it nothing can be said."""
    lines = tuple(linecache.getlines(file))
    rows = [line.rstrip("\n") for line in lines]
    if not lines or any(edit.last >= edit.first and "\n".join(rows[edit.first - 1 : edit.last]) != edit.was for edit in edits):
        return ""
    old, new = code_of(file, lines), edited_code(file, rows, edits)
    if old is None or new is None:
        return ""
    if ast.dump(old.tree) == ast.dump(new.tree):
        return "it changes nothing"
    known = _dumps(old.tree)
    rewritten = _rewritten_lines(edits)
    statements = [each for each in _statements_within(new.tree, rewritten) if _own_dump(each) not in known]
    for statement in statements[:_HIGHEST]:
        added = [node for node in new.parts(statement) if isinstance(node, ast.expr) and ast.dump(node) not in known]
        written = _Written(old, new, statement, tuple(added), fault)
        for objection in _OBJECTIONS:
            if why := objection(written):
                return why
    return ""


def _asks_what_has_no_device(written: _Written) -> str:
    for receiver in _receivers(written.added):
        kind = _without_devices(written.code, written.statement, receiver)
        if kind:
            return f"`{ast.unparse(receiver)}` is {kind}"
    return ""


def _without_devices(code: Code, statement: ast.stmt, receiver: ast.expr) -> str:
    """Return the kind of an object without `.to`, if every assignment of its name shows it; ""."""
    if not isinstance(receiver, ast.Name):
        return _kind(code, receiver)
    scope = code.scope(statement)
    arguments = (
        {each.arg for each in ast.walk(scope.args) if isinstance(each, ast.arg)} if isinstance(scope, Function) else set()
    )
    if receiver.id in arguments | code.local_names(receiver):
        return ""
    kinds = set()
    for node in ast.walk(scope):
        given = isinstance(node, ast.Assign) and receiver.id in map(ast.unparse, node.targets)
        if isinstance(node, ast.Assign) and given and node.lineno < statement.lineno and code.scope(node) is scope:
            kinds.add(_kind(code, node.value))
    return kinds.pop() if len(kinds) == 1 else ""


def _kind(code: Code, value: ast.expr) -> str:
    """The kind of object without a `.to` that an expression is, if that can be seen."""
    match value:
        case ast.Lambda():
            return "a function"
        case ast.Constant(value=constant):
            return "no tensor" if constant is not None else ""
        case ast.List() | ast.Dict() | ast.Set() | ast.Tuple() | ast.ListComp() | ast.DictComp() | ast.SetComp():
            return "a container"
        case ast.Call():
            return _kind_of_call(code, ast.unparse(value.func))
    return ""


def _kind_of_call(code: Code, called: str) -> str:
    if called.startswith(_MAKES_ARRAYS):
        return "a numpy array"
    if called in _NUMBERS or called.endswith(_READS):
        return "no tensor"
    if called.rpartition(".")[2] == "Parameter":
        return "a parameter, and its copy would be none"
    for each in code.tree.body:
        if isinstance(each, ast.ClassDef) and each.name == called and not each.bases:
            methods = {member.name for member in each.body if isinstance(member, Function)}
            return "" if methods.intersection(_HAVE_DEVICES) else f"a `{called}`, which has no `to`"
    return ""


def _reads_device_of_stray(written: _Written) -> str:
    """Where a kernel is missing, or dtypes do not mix, tensors are on the intended device."""
    fault = written.fault
    if fault is None or fault.what in ("kernel", "dtype", "promotion") or is_inplace(fault.call):  # what is written stays
        return ""
    right = {operand.expression for operand in fault.operands if not operand.stray}
    strays = (operand for operand in fault.operands if operand.stray and operand.argument != "generator")
    wrong = {operand.expression for operand in strays} - right - {""}
    for node in written.added:
        if not isinstance(node, ast.Attribute) or node.attr != "device":
            continue
        name = ast.unparse(node.value)
        is_written = any(map(written.code.is_written, written.code.alike(written.statement, name)))
        if name in wrong and not is_written:
            return f"`{name}` is not where it must be"
    return ""


def _loses_writes(written: _Written) -> str:
    """`kept = kept.to(device)` of a variable that a loop over a container binds, and that is written in place below."""
    match written.statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(value=ast.Name(id=moved)))) if (
            name == moved
        ):
            pass
        case _:
            return ""
    for loop in written.code.around(written.statement):
        if isinstance(loop, ast.For) and name in {node.id for node in names_in(loop.target)}:
            below = (node for node in names_in(loop) if node.id == name and node.lineno > written.statement.lineno)
            if any(written.code.is_written(node) for node in below):
                return f"what is written into `{name}` would not arrive"
    return ""


def _is_sent_back(written: _Written) -> str:
    """What the statement assigns is moved back by the function: `table = table.to("cpu")`."""
    names = {ast.unparse(target) for target in targets_of(written.statement)}
    if written.fault is None or not names:
        return ""
    wrong = {operand.device for operand in written.fault.operands if operand.stray}
    own = set(ast.walk(written.statement))
    for node in ast.walk(written.code.scope(written.statement)):
        match node:
            case ast.Call(func=ast.Attribute(value=moved)) if node not in own and ast.unparse(moved) in names:
                if any(goes_to(node, device) for device in wrong):
                    return f"`{ast.unparse(moved)}` is moved back"
    return ""


def _moves_in_a_worker(written: _Written) -> str:
    """In `__getitem__` of a data set, or in the function that collates its samples."""
    code = written.code
    function = next((each for each in code.around(written.statement) if isinstance(each, Function)), None)
    names_device = any(isinstance(node, ast.Call) and keyword_of(node, "device") for node in written.added)
    if function is None or not (names_device or any(_receivers(written.added))):
        return ""
    owner = code.owner(function)
    is_of_dataset = owner is not None and any("Dataset" in ast.unparse(base) for base in owner.bases)
    if function.name in ("collate", "collate_fn") or (function.name in IN_WORKERS and is_of_dataset):
        return _WORKERS
    passed = (node.value for node in ast.walk(code.tree) if isinstance(node, ast.keyword) and node.arg in _OF_WORKERS)
    if any(root_of(ast.unparse(each)) == function.name for each in passed):
        return _WORKERS
    return ""


_WORKERS = "workers of a DataLoader use no GPU"
_OBJECTIONS: tuple[Callable[[_Written], str], ...] = (
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


def _rewritten_lines(edits: list[Edit]) -> list[range]:
    """Return the lines of the new file that edits wrote, or that are next to removed lines."""
    found, shift = [], 0
    for edit in sorted(edits, key=lambda each: each.first):
        count = len(edit.new_lines)
        found.append(range(edit.first + shift - 1, edit.first + shift + count + 1))
        shift += count - (edit.last - edit.first + 1)
    return found


def _statements_within(node: ast.AST, lines: list[range]) -> Iterator[ast.stmt]:
    for each in inner_statements(node):
        first = min([each.lineno, *(decorator.lineno for decorator in getattr(each, "decorator_list", ()))])
        last = each.end_lineno or each.lineno
        if any(first < part.stop and part.start <= last for part in lines):
            yield each
            yield from _statements_within(each, lines)


@functools.lru_cache(maxsize=4)  # a file before its edits is asked for each of them; each keeps a syntax tree
def _dumps(tree: ast.AST) -> frozenset[str]:
    """The dumps of all statements, without the bodies of compound ones, and of all expressions."""
    nodes = list(ast.walk(tree))
    statements = [_own_dump(node) for node in nodes if isinstance(node, ast.stmt)]
    return frozenset(statements).union(ast.dump(node) for node in nodes if isinstance(node, ast.expr))


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
