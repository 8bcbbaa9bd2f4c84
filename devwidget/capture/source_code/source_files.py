"""Files as syntax trees. Each is parsed once, and kept until it changes."""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from types import CodeType

from devwidget.capture.source_code.stack import is_users_code
from devwidget.records.site import cell_label
from devwidget.records.syntax import Function, inner_statements, is_shallow, own_lines, parsed, targets_of

MOST_FILES = 100
"""Files kept, whose trees take up to 1 MB per 1,000 lines. The oldest are dropped first."""


class SourceFile:
    """One file.

    Attributes:
        lines: lines from linecache.
        tree: syntax tree of the file.
        scopes: functions and classes, outer ones first.
        statements: in order.
    """

    def __init__(self, lines: list[str], tree: ast.Module) -> None:
        self.lines, self.tree = lines, tree
        self.scopes: list[Function | ast.ClassDef] = []
        self.statements: list[ast.stmt] = []
        self._at_line: dict[int, ast.stmt] = {}
        self._assigned: dict[ast.AST, dict[str, list[int]]] = {}
        waiting = deque(tree.body)
        while waiting:
            node = waiting.popleft()  # outer statements before inner ones, whose lines are then theirs
            self.statements.append(node)
            self._at_line.update(dict.fromkeys(own_lines(node), node))
            if isinstance(node, Function | ast.ClassDef):
                self.scopes.append(node)
            waiting.extend(inner_statements(node))
        self.statements.sort(key=lambda node: node.lineno)

    def statement_lines(self, line: int) -> range:
        """Return the lines of the innermost statement at a line; for a compound one only the head. Empty if there is none."""
        node = self._at_line.get(line)
        if node is not None:
            return own_lines(node)
        return range(0)

    def functions_around(self, line: int) -> list[Function]:
        """Return the functions around a line, innermost first."""
        around = []
        for scope in reversed(self.scopes):
            if isinstance(scope, Function) and _encloses(scope, line):
                around.append(scope)
        return around

    def assigned_lines(self, scope: Function | ast.Module, name: str) -> list[int]:
        """Return the lines on which a scope assigns a variable, `self.mask` or `state['speed']`, in order."""
        if scope not in self._assigned:
            lines: dict[str, list[int]] = {}
            for node in statements_of(scope):
                for target in filter(is_shallow, targets_of(node)):
                    lines.setdefault(ast.unparse(target), []).append(node.lineno)
            self._assigned[scope] = lines
        return self._assigned[scope].get(name, [])


_known: dict[str, tuple[list[str], SourceFile]] = {}


def read_file(filename: str) -> SourceFile:
    """Read a file. It has no statements without source, if it does not parse (a cell with magics), or if it is very large."""
    lines = linecache.getlines(filename)
    known = _known.get(filename)
    if known is not None and known[0] is lines:  # linecache hands out the same list until the file changes
        return known[1]
    file = SourceFile(lines, parsed("".join(lines), deep=True) or ast.Module([], []))
    _known.pop(filename, None)
    _known[filename] = lines, file
    if len(_known) > MOST_FILES:
        _known.pop(next(iter(_known)))
    return file


def _encloses(scope: Function | ast.ClassDef, line: int) -> bool:
    return scope.lineno <= line <= (scope.end_lineno or scope.lineno)


def classes_named(filename: str, name: str, lines: Iterable[int]) -> list[ast.ClassDef]:
    """Return the classes of a name in a file: the ones around one of these lines, if there are any."""
    named, around = [], []
    for scope in read_file(filename).scopes:
        if isinstance(scope, ast.ClassDef) and scope.name == name:
            named.append(scope)
            if any(_encloses(scope, line) for line in lines):
                around.append(scope)
    return around or named


def definition_of(code: CodeType) -> Function | None:
    """Return the syntax tree of a user's function."""
    if not is_users_code(code):
        return None
    return function_of(code)


def function_of(code: CodeType) -> Function | None:
    """Return the syntax tree of a function, of the user or of a library."""
    for scope in read_file(code.co_filename).scopes:
        is_it = scope.name == code.co_name and own_lines(scope).start == code.co_firstlineno
        if is_it and isinstance(scope, Function):
            return scope
    return None


def methods_of(owner: ast.ClassDef) -> list[Function]:
    """Return functions that a class defines."""
    return [node for node in owner.body if isinstance(node, Function)]


def statements_of(scope: Function | ast.Module | None) -> Iterator[ast.stmt]:
    """Yield statements of a function or a file in order, without statements of inner functions and classes."""
    if scope is None:
        return
    waiting = scope.body[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef):
            waiting += [*inner_statements(node)][::-1]


_STARTED = time.time()
"""Python loaded the present text of files that are older than this process."""


def is_outdated(code: CodeType) -> bool:
    """Return whether the file of a code object has been edited since Python loaded it, so that its lines have moved."""
    file = code.co_filename
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        if cell_label(file) or _is_rewritten(code) or os.stat(file).st_mtime < _STARTED:
            return False
        linecache.checkcache(file)
        whole = compile("".join(linecache.getlines(file)), file, "exec", dont_inherit=True)
        return code not in codes_in(whole)
    return False


def _is_rewritten(code: CodeType) -> bool:
    """Whether it has names that no text can have, as the assertions that pytest compiles anew."""
    return any(name.startswith("@") for name in (*code.co_names, *code.co_varnames))


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and the code objects of the functions and classes in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)
