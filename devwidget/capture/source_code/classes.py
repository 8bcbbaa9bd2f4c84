"""Classes: their functions as the author wrote them, and where these assign, read and write an attribute."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from devwidget.capture.object_fields import mro_of, names_of
from devwidget.capture.source_code import statements
from devwidget.capture.source_code.source_files import ClassName, Function, classes, methods_of, read_file, statements_of
from devwidget.capture.source_code.stack import is_users_code
from devwidget.capture.source_code.statements import first_line, site_at
from devwidget.records.site import Site
from devwidget.records.syntax import assigns_self_attribute, can_name, is_self_attribute, targets_of

MOST_WRAPPERS = 32


def functions_of(kind: type) -> Iterator[FunctionType]:
    """The user's functions in a class and its bases, nearest first, with those that a decorator has wrapped."""
    for base in mro_of(kind):
        yield from functions_in(base)


def functions_in(kind: type) -> Iterator[FunctionType]:
    """`functions_of`, of one class without its bases."""
    for member in list(names_of(kind).values()):
        yield from list_written(member)


def list_written(member: object) -> Iterator[FunctionType]:
    """The user's functions behind a method, a property or a wrapper, the outermost first."""
    outer, seen = _unwrap_member(member), 0
    waiting = [outer] if outer is not None else []
    while waiting and seen < MOST_WRAPPERS:
        each, seen = waiting.pop(0), seen + 1
        if is_users_code(each.__code__):
            yield each
        waiting += _wrapped_by(each)


def _wrapped_by(function: FunctionType) -> list[FunctionType]:
    """What `functools.wraps` says that a function stands for, then the functions of the same name that it closes over."""
    told = _unwrap_member(function.__dict__.get("__wrapped__"))
    cells = [_unwrap_member(value) for value in map(cell_contents, function.__closure__ or ())]
    return [each for each in (told, *cells) if each is not None and each.__name__ == function.__name__]


def cell_contents(cell: Any) -> object:
    """What a variable of an outer function holds; None if nothing yet."""
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _unwrap_member(member: object) -> FunctionType | None:
    if type(member) is staticmethod or type(member) is classmethod:
        member = member.__func__
    elif type(member) is property:
        member = member.fget
    if type(member) is FunctionType:
        return member
    return None


INITIALISERS = ("__init__", "reset_parameters", "setup")


def attribute_assignment(filename: str, kind: ClassName, attribute: str) -> Site | None:
    """Where the methods of a class first say `self.attribute = ...`, `__init__` before the others."""
    for owner in classes(filename, kind):
        for method, node in _assignments(owner, attribute):
            return site_at(filename, node.lineno, method.name)
        for node in owner.body:
            if any(isinstance(target, ast.Name) and target.id == attribute for target in targets_of(node)):
                return site_at(filename, node.lineno, kind.name)
    return None


def find_filling(filename: str, kind: ClassName, attribute: str) -> Site | None:
    """Where a class first registers or assigns something that is not None: `self.attribute = None` only announces it."""
    for owner in classes(filename, kind):
        for method, node in _assignments(owner, attribute):
            value = getattr(node, "value", None)
            if not (isinstance(value, ast.Constant) and value.value is None):
                return site_at(filename, node.lineno, method.name)
    return None


def _assignments(owner: ast.ClassDef, attribute: str) -> Iterator[tuple[Function, ast.stmt]]:
    for method in sorted(methods_of(owner), key=lambda m: m.name != "__init__"):
        for node in statements_of(method):
            if _gives_value(node, attribute):
                yield method, node


def _gives_value(node: ast.stmt, attribute: str) -> bool:
    """`self.bank = x`, `self.register_buffer('bank', x)`, `setattr(self, 'bank', x)`, `object.__setattr__(self, 'bank', x)`."""
    match getattr(node, "value", None):
        case ast.Call(func=ast.Attribute(attr="register_buffer" | "register_parameter") as method, args=[name, *_]):
            return is_self_attribute(method) and can_name(name, attribute)
        case ast.Call(func=function, args=[ast.Name(id="self"), name, _]):
            return ast.unparse(function).endswith(("setattr", "__setattr__")) and can_name(name, attribute)
    return assigns_self_attribute(node, attribute)


def attribute_read(filename: str, kind: ClassName, attribute: str) -> Site | None:
    """Where a method of a class first reads `self.attribute`; the initialisers are not asked."""
    for owner in classes(filename, kind):
        for node in _reads(owner, attribute):
            return site_at(filename, first_line(filename, node.lineno), kind.name)
    return None


def first_write(filename: str, kind: ClassName, attribute: str) -> Site | None:
    """Where a method other than `__init__` first writes `self.attribute`."""
    for owner in classes(filename, kind):
        for method, node in _later_writes(owner, attribute):
            return site_at(filename, node.lineno, method.name)
    return None


def relied_on_writes(filename: str, kind: ClassName, attribute: str) -> Site | None:
    """Where a method other than `__init__` writes `self.attribute`, if the class reads it too."""
    for owner in classes(filename, kind):
        writes = list(_later_writes(owner, attribute))
        is_read = any(_reads(owner, attribute)) or any(isinstance(node, ast.AugAssign) for _, node in writes)
        if writes and is_read:
            method, node = writes[0]
            return site_at(filename, node.lineno, method.name)
    return None


def _later_methods(owner: ast.ClassDef) -> list[Function]:
    return [method for method in methods_of(owner) if method.name not in INITIALISERS]


def _later_writes(owner: ast.ClassDef, attribute: str) -> Iterator[tuple[Function, ast.stmt]]:
    for method in _later_methods(owner):
        for node in statements_of(method):
            if assigns_self_attribute(node, attribute):
                yield method, node


def _reads(owner: ast.ClassDef, attribute: str) -> Iterator[ast.Attribute]:
    for method in _later_methods(owner):
        for node in ast.walk(method):
            match node:
                case ast.Attribute(ctx=ast.Load()) if is_self_attribute(node, attribute):
                    yield node


def read_outside(filename: str, kind: ClassName, attribute: str) -> bool:
    """Whether a file reads `something.attribute` outside of a class."""
    file = read_file(filename)
    own = {id(node) for owner in classes(filename, kind) for node in ast.walk(owner)}
    for node in ast.walk(file.tree) if file is not None else ():
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()) if name == attribute and id(node) not in own:
                return True
    return False


def last_return(filename: str, kind: ClassName, method: str) -> Site | None:
    """The last `return` of a method."""
    for owner in classes(filename, kind):
        for each in methods_of(owner):
            if each.name == method:
                return statements.last_return(filename, each)
    return None
