"""What each line of a file belongs to: read once from its syntax tree, which is not kept."""

from __future__ import annotations

import ast
import bisect
import linecache
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from devwidget.records.device import PLACING_METHODS
from devwidget.records.site import cell_label
from devwidget.records.syntax import LARGEST, inner_statements, is_shallow, parsed, targets_of

MOVES = frozenset({*PLACING_METHODS, "ipu", "type", "half", "float", "double", "bfloat16"})
"""Methods of a tensor that return the moved or cast one and leave the tensor itself as it is."""
_MOST_KEPT = 2**24
"""Characters of all files with an index; the oldest go first."""


@dataclass(frozen=True, slots=True)
class SourceScope:
    """A function or a class.

    Attributes:
        name, first, last: its name and lines, without decorators.
        outer: number of the scope around it; -1 for none.
        parameters: positional ones of a function; None for a class.
    """

    name: str
    first: int
    last: int
    outer: int
    parameters: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class SourceMove:
    """A statement that names a move of something and keeps nothing: `x.cuda()`, or `x.cuda` without the call."""

    line: int
    scope: int
    name: str
    is_called: bool


@dataclass(slots=True)
class FileIndex:
    """One file.

    Attributes:
        lines: as linecache holds them.
        first, last: of the innermost statement at each line, 0 for none; of a compound one the head alone.
        innermost: number of the innermost function at each line, -1 for none.
        scopes: functions and classes, outer ones first.
        assigned: by scope (-1 for the file) and name, the lines that assign it, in order.
        moves: in order of their lines.
    """

    lines: list[str]
    first: array[int]
    last: array[int]
    innermost: array[int]
    scopes: list[SourceScope] = field(default_factory=list)
    assigned: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    moves: list[SourceMove] = field(default_factory=list)

    def statement(self, line: int) -> tuple[int, int] | None:
        """First and last line of the statement at a line."""
        return (self.first[line], self.last[line]) if 0 < line < len(self.first) and self.first[line] else None

    def functions(self, line: int) -> Iterator[int]:
        """The functions around a line, the innermost first."""
        number = self.innermost[line] if 0 < line < len(self.innermost) else -1
        while number >= 0:
            if self.scopes[number].parameters is not None:
                yield number
            number = self.scopes[number].outer

    def assignment(self, scope: int, name: str, before: int) -> int:
        """The last line above `before` that assigns a name in a scope; 0 for none."""
        lines = self.assigned.get((scope, name), [])
        at = bisect.bisect_left(lines, before)
        return lines[at - 1] if at else 0

    def classes(self, name: str) -> list[SourceScope]:
        """Every class of that name."""
        return [scope for scope in self.scopes if scope.name == name and scope.parameters is None]


_known: dict[str, tuple[list[str], int, FileIndex | None]] = {}


def index_of(filename: str) -> FileIndex | None:
    """The index of a file; None where there is no source, it does not parse (a cell with magics), or it is very large."""
    lines = linecache.getlines(filename)
    known = _known.get(filename)
    if known is not None and known[0] is lines:  # linecache hands out the same list until the file changes
        return known[2]
    size = sum(map(len, lines))
    earlier = _earlier_run(filename, lines, size)
    index = _known.pop(earlier)[2] if earlier else _read(lines) if 0 < size <= LARGEST else None
    _known.pop(filename, None)
    _known[filename] = lines, size, index
    _forget_oldest()
    return index


def _earlier_run(filename: str, lines: list[str], size: int) -> str | None:
    """The cell of a notebook that this one is, run again under another name."""
    if not cell_label(filename):
        return None
    cells = (name for name, known in _known.items() if known[1] == size and name != filename and cell_label(name))
    return next((name for name in cells if _known[name][0] == lines), None)


def _forget_oldest() -> None:
    kept = list(_known.items())
    total = sum(size for _, (_, size, _) in kept)
    for name, (_, size, _) in kept[:-1]:
        if total > _MOST_KEPT:
            _known.pop(name, None)
            total -= size


def _read(lines: list[str]) -> FileIndex | None:
    tree = parsed("".join(lines), deep=True)
    if tree is None:
        return None
    size = len(lines) + 2
    index = FileIndex(lines, array("I", bytes(4 * size)), array("I", bytes(4 * size)), array("i", [-1]) * size)
    waiting: deque[tuple[ast.stmt, int]] = deque((node, -1) for node in tree.body)
    while waiting:
        node, scope = waiting.popleft()  # outer statements before inner ones, whose lines are then theirs
        inner = _enter(index, node, scope)
        waiting.extend((child, inner) for child in inner_statements(node))
    for found in index.assigned.values():
        found.sort()
    index.moves.sort(key=lambda move: move.line)
    return index


def _enter(index: FileIndex, node: ast.stmt, scope: int) -> int:
    """Note one statement; the scope of those inside it."""
    rows = own_lines(node)
    index.first[rows.start : rows.stop] = array("I", [rows.start]) * len(rows)
    index.last[rows.start : rows.stop] = array("I", [rows.stop - 1]) * len(rows)
    for target in targets_of(node):
        if isinstance(target, ast.Name):
            index.assigned.setdefault((scope, target.id), []).append(node.lineno)
    if isinstance(node, ast.Expr):
        _note_move(index, node, scope)
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return scope
    parameters = None if isinstance(node, ast.ClassDef) else tuple(each.arg for each in node.args.args)
    last = node.end_lineno or node.lineno
    index.scopes.append(SourceScope(node.name, node.lineno, last, scope, parameters))
    number = len(index.scopes) - 1
    index.innermost[node.lineno : last + 1] = array("i", [number]) * (last + 1 - node.lineno)
    return number


def _note_move(index: FileIndex, node: ast.Expr, scope: int) -> None:
    value = node.value
    method = value.func if isinstance(value, ast.Call) else value
    if isinstance(method, ast.Attribute) and method.attr in MOVES and is_shallow(method):
        index.moves.append(SourceMove(node.lineno, scope, ast.unparse(method.value), isinstance(value, ast.Call)))


def own_lines(node: ast.stmt) -> range:
    """Lines of a statement without the body of a compound one."""
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    last = body[0].lineno - 1 if body and isinstance(body[0], ast.stmt) else node.end_lineno or node.lineno
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return range(first, max(last, node.lineno) + 1)
