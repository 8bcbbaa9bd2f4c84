"""Functions of a class as the author wrote them, and where these assign, read and write an attribute."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FunctionType
from typing import NamedTuple

from devwidget.capture.object_fields import cell_contents, class_name, mro_of, names_of
from devwidget.capture.source_code.source_files import classes_named, methods_of, read_file, statements_of
from devwidget.capture.source_code.stack import is_users_code
from devwidget.capture.source_code.statements import last_return, site_at
from devwidget.records.site import Site
from devwidget.records.syntax import Function, assigns_self_attribute, can_name, is_self_attribute, nodes_in, targets_of

MOST_WRAPPERS = 32


def functions_of(kind: type) -> Iterator[FunctionType]:
    """Yield the user's functions in a class and its bases, nearest first, including decorated ones."""
    for base in mro_of(kind):
        yield from functions_in(base)


def functions_in(kind: type) -> Iterator[FunctionType]:
    """Yield `functions_of` for one class without its bases."""
    for member in list(names_of(kind).values()):
        yield from list_written(member)


def list_written(member: object) -> Iterator[FunctionType]:
    """Yield the user's functions behind a method, a property or a wrapper, the outermost first."""
    outer, seen = _unwrap_member(member), 0
    waiting = [outer] if outer is not None else []
    while waiting and seen < MOST_WRAPPERS:
        each, seen = waiting.pop(0), seen + 1
        if is_users_code(each.__code__):
            yield each
        waiting += _wrapped_by(each)


def _wrapped_by(function: FunctionType) -> list[FunctionType]:
    """Return the function wrapped by `functools.wraps`, then functions of the same name in the closure."""
    told = _unwrap_member(function.__dict__.get("__wrapped__"))
    cells = map(_unwrap_member, map(cell_contents, function.__closure__ or ()))
    found = [each for each in (told, *cells) if each is not None]
    return [each for each in found if each.__name__ == function.__name__]


def _unwrap_member(member: object) -> FunctionType | None:
    if type(member) is staticmethod or type(member) is classmethod:
        member = member.__func__
    elif type(member) is property:
        member = member.fget
    if type(member) is FunctionType:
        return member
    return None


INITIALISERS = ("__init__", "reset_parameters", "setup")


def definitions(kind: type) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield a user's class and its bases, nearest first, as their files define them."""
    for base in mro_of(kind):
        lines: dict[str, list[int]] = {}
        for function in functions_in(base):
            lines.setdefault(function.__code__.co_filename, []).append(function.__code__.co_firstlineno)
        for filename, inside in lines.items():
            for owner in classes_named(filename, class_name(base), inside):
                yield filename, owner


class _Write(NamedTuple):
    """A statement in a class, or in a method of it, that gives an attribute a value."""

    filename: str
    owner: ast.ClassDef
    scope: Function | ast.ClassDef
    node: ast.stmt

    def find_site(self) -> Site:
        return site_at(self.filename, self.node.lineno, self.scope.name)


def _list_writes(kind: type, name: str) -> Iterator[_Write]:
    """Yield where a class gives an attribute a value, `__init__` before other methods; `name` may be longer: `cache[0]`."""
    attribute = _attribute_in(name)
    for filename, owner in definitions(kind):
        for method in sorted(methods_of(owner), key=lambda method: method.name != "__init__"):
            for node in statements_of(method):
                if _gives_value(node, attribute):
                    yield _Write(filename, owner, method, node)
        for node in owner.body:
            if any(isinstance(target, ast.Name) and target.id == attribute for target in targets_of(node)):
                yield _Write(filename, owner, owner, node)


def _list_later_writes(kind: type, attribute: str) -> Iterator[_Write]:
    """Yield those in methods that do not initialise."""
    return (write for write in _list_writes(kind, attribute) if write.scope.name not in (*INITIALISERS, write.owner.name))


def attribute_assignment(kind: type, name: str) -> Site | None:
    """Return where a class first assigns an attribute."""
    for write in _list_writes(kind, name):
        return write.find_site()
    return None


def find_filling(kind: type, name: str) -> Site | None:
    """Return where a class first registers or assigns something. `self.parts = None` and `self.parts = []` only announce it."""
    for write in _list_writes(kind, name):
        value = getattr(write.node, "value", None)
        if value is not None and ast.unparse(value) not in ("None", "[]", "{}", "list()", "dict()"):
            return write.find_site()
    return None


def deciding_assignment(kind: type, name: str) -> Site | None:
    """Return the line of a class that decides where an attribute is; None where several methods give it a value.

    `self.attribute = None` decides nothing. What is computed from the attribute itself, or in `forward`, continues it.
    """
    found: dict[tuple[str, str], Site] = {}
    for write in _list_writes(kind, name):
        decides = write.scope.name not in ("forward", "__call__", write.owner.name) and not _continues(write, name)
        if decides:
            found.setdefault((write.filename, write.scope.name), write.find_site())
    if len(found) == 1:
        return found.popitem()[1]
    return None


def _continues(write: _Write, name: str) -> bool:
    """Return whether a statement gives an attribute no value, or one that comes from the attribute, also through variables."""
    value = getattr(write.node, "value", None)
    if value is None or isinstance(write.node, ast.AugAssign) or (isinstance(value, ast.Constant) and value.value is None):
        return True
    if isinstance(write.scope, ast.ClassDef):
        return False
    attribute, older = _attribute_in(name), set[str]()
    for node in statements_of(write.scope):
        if node is write.node:
            break
        read = getattr(node, "value", None)
        if read is not None and _reads_any(read, attribute, older):
            older.update(target.id for target in targets_of(node) if isinstance(target, ast.Name))
    return _reads_any(value, attribute, older)


def _reads_any(value: ast.AST, attribute: str, variables: set[str]) -> bool:
    for part in ast.walk(value):
        if is_self_attribute(part, attribute) or (isinstance(part, ast.Name) and part.id in variables):
            return True
    return False


def _attribute_in(name: str) -> str:
    return name.split("[")[0].split(".")[0]


def _gives_value(node: ast.stmt, attribute: str) -> bool:
    """Return whether a node is `self.bank = x`, `self.register_buffer('bank', x)`, `setattr(self, 'bank', x)` or similar."""
    match getattr(node, "value", None):
        case ast.Call(func=ast.Attribute(attr="register_buffer" | "register_parameter") as method, args=[name, *_]):
            return is_self_attribute(method) and can_name(name, attribute)
        case ast.Call(func=function, args=[ast.Name(id="self"), name, _]):
            return ast.unparse(function).endswith(("setattr", "__setattr__")) and can_name(name, attribute)
    return assigns_self_attribute(node, attribute)


def attribute_read(kind: type, name: str) -> Site | None:
    """Return where a method of a class, other than an initialiser, first reads an attribute."""
    for filename, owner in definitions(kind):
        for node in _reads(owner, _attribute_in(name)):
            return site_at(filename, read_file(filename).statement_lines(node.lineno).start or node.lineno, owner.name)
    return None


def first_write(kind: type, attribute: str) -> Site | None:
    """Return where a method other than `__init__` first writes `self.attribute`."""
    for write in _list_later_writes(kind, attribute):
        return write.find_site()
    return None


def is_decided_later(kind: type, attribute: str) -> bool:
    """Return whether a method other than an initialiser gives an attribute a value that does not come from the attribute."""
    return any(not _continues(write, attribute) for write in _list_later_writes(kind, attribute))


def relied_on_write(kind: type, attribute: str, *, by_others: bool) -> Site | None:
    """Return the same, if the class reads it too, or if `by_others` other code of its file does."""
    for write in _list_later_writes(kind, attribute):
        is_read = isinstance(write.node, ast.AugAssign) or any(_reads(write.owner, attribute))
        if is_read or (by_others and _is_read_outside(write.filename, write.owner, attribute)):
            return write.find_site()
    return None


def _reads(owner: ast.ClassDef, attribute: str) -> Iterator[ast.Attribute]:
    for method in methods_of(owner):
        if method.name in INITIALISERS:
            continue
        for node in nodes_in(method, ast.Attribute):
            if isinstance(node.ctx, ast.Load) and is_self_attribute(node, attribute):
                yield node


def _is_read_outside(filename: str, owner: ast.ClassDef, attribute: str) -> bool:
    """Return whether a file reads `something.attribute` outside of a class."""
    own = {id(node) for node in ast.walk(owner)}
    for node in ast.walk(read_file(filename).tree):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()) if name == attribute and id(node) not in own:
                return True
    return False


def return_of_forward(kind: type) -> Site | None:
    """Return the last `return` of the `forward` of a class."""
    for filename, owner in definitions(kind):
        for each in methods_of(owner):
            if each.name == "forward":
                return last_return(filename, each)
    return None
