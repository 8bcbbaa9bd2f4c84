"""Functions and classes of a file as syntax trees, each parsed by itself."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple

from devwidget.capture.source_code.call_sites import is_library
from devwidget.capture.source_code.source_index import FileIndex, index_of
from devwidget.records.syntax import inner_statements, parsed

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class ClassName(NamedTuple):
    """How a class is found in a file, which may have several of one name.

    Attributes:
        name: of the class.
        lines: where functions of it begin in the file.
    """

    name: str
    lines: tuple[int, ...] = ()


def classes(filename: str, owner: ClassName) -> Iterator[ast.ClassDef]:
    """The classes that it may be, parsed by themselves, with the lines of the file."""
    index = index_of(filename)
    named = index.classes(owner.name) if index is not None else []
    around = [scope for scope in named if any(scope.first <= line <= scope.last for line in owner.lines)]
    for scope in around or named:
        node = _class("".join(_under_if(index, scope.first, scope.last)), scope.first) if index is not None else None
        if node is not None:
            yield node


def _under_if(index: FileIndex, first: int, last: int) -> Iterator[str]:
    """Lines that parse as they are indented: dedenting them would change texts of several lines inside."""
    if index.lines[first - 1][:1].isspace():
        yield "if True:\n"
    yield from index.lines[first - 1 : last]


def definition(filename: str, first: int, name: str) -> ast.stmt | None:
    """The function or class of a name whose lines, with its decorators, begin at `first`; parsed by itself."""
    index = index_of(filename)
    if index is None:
        return None
    found = next((each for each in index.scopes if each.name == name and index.first[each.first] == first), None)
    return _definition("".join(_under_if(index, found.first, found.last)), found.first) if found is not None else None


def definition_of(code: CodeType) -> _Function | None:
    """The syntax tree of a user's function, with the lines of its file."""
    if is_library(code.co_filename) or code.co_name.startswith("<"):
        return None
    node = definition(code.co_filename, code.co_firstlineno, code.co_name)
    return node if isinstance(node, _Function) else None


def _class(text: str, first: int) -> ast.ClassDef | None:
    node = _definition(text, first)
    return node if isinstance(node, ast.ClassDef) else None


@functools.lru_cache(maxsize=64)
def _definition(text: str, first: int) -> ast.stmt | None:
    tree = parsed(text, deep=True)
    if tree is None:
        return None
    outer = tree.body[0]
    node = outer.body[0] if isinstance(outer, ast.If) else outer
    ast.increment_lineno(node, first - node.lineno)
    return node


def methods_of(owner: ast.ClassDef) -> list[_Function]:
    """Functions that a class defines."""
    return [node for node in owner.body if isinstance(node, _Function)]


def statements_of(scope: _Function) -> Iterator[ast.stmt]:
    """Statements of a function in order, not those of functions and classes inside it."""
    waiting = scope.body[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _Function | ast.ClassDef):
            waiting += [*inner_statements(node)][::-1]
