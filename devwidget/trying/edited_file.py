"""A file before and after some edits, compiled so that each line that stands in both has its old number."""

from __future__ import annotations
import __future__

import ast
import functools
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, NamedTuple

from devwidget.records.finding import Edit, apply_edits, splice_lines
from devwidget.trying.reached import marker

Key = tuple[str, int]
"""Qualified name and first line of a function."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


class NotTried(Exception):
    """The edits cannot be put in place of what they replace."""


class Place(NamedTuple):
    """Where an edit is: before which statement of which block, in which class and function, if any."""

    block: list[ast.stmt]
    number: int
    function: Function | None
    owner: ast.ClassDef | None


@dataclass(frozen=True)
class EditedFile:
    """Both versions of a file.

    Attributes:
        file: its name.
        edits: as they were given.
        before: the tree of the old text.
        places: of each edit, in the tree of the new text.
        statements: of each edit, its new ones.
        old, new: the code of each function.
        flags: of the compiler.
    """

    file: str
    edits: Sequence[Edit]
    before: ast.Module
    places: list[Place]
    statements: list[list[ast.stmt]]
    old: dict[Key, CodeType]
    new: dict[Key, CodeType]
    flags: int

    def changed(self) -> set[Key]:
        """The functions that both have, with another code."""
        return {key for key in self.old.keys() & self.new.keys() if self.old[key] != self.new[key]}

    def is_of(self, code: CodeType) -> bool:
        """Whether some code is what the old text says."""
        key = code.co_qualname, code.co_firstlineno
        return code in (self.old.get(key), self._of_cells.get(key))

    @functools.cached_property
    def _of_cells(self) -> dict[Key, CodeType]:
        """The old code, each statement compiled alone as IPython does: it knows no names that another one imports."""
        parts = [ast.Module([node], []) for node in self.before.body]
        return {key: code for part in parts for key, code in _codes(part, self.file, self.flags).items()}


def edited(file: str, edits: Sequence[Edit], numbers: Sequence[int], flags: int) -> EditedFile:
    """Apply edits to a file.

    Args:
        file: its name, or that of a cell.
        edits: of this file.
        numbers: under which each is marked when it is reached.
        flags: of the code of any of its functions, for the `__future__` statements of other cells.

    Raises:
        NotTried: if one of the versions is no program, or the file is not what the edits were made for.
    """
    rows = [row.rstrip("\n") for row in linecache.getlines(file)]
    if not all(edit.fits(rows) for edit in edits):
        raise NotTried(f"{file} has changed")
    numbers_of_rows: list[tuple[int, Edit | None]] = [(number, None) for number in range(1, len(rows) + 1)]
    lines, numbering = apply_edits(rows, edits), splice_lines(numbers_of_rows, edits, _numbers)
    try:
        before, after = ast.parse("\n".join(rows)), ast.parse("\n".join(lines))
        spans = [_span(edit, numbering) for edit in edits]
        places = [located(after, *span) for span in spans]
        statements = [[node for node in place.block if _within(node, *span)] for place, span in zip(places, spans, strict=True)]
        _renumber(after, numbering)
        for place, number in sorted(zip(places, numbers, strict=True), key=lambda pair: -pair[0].number):
            if place.function is not None:
                place.block.insert(place.number, marker(number, place.block[min(place.number, len(place.block) - 1)]))
        old, new = (_codes(tree, file, flags) for tree in (before, after))
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError) as error:
        raise NotTried(str(error)) from error
    return EditedFile(file, edits, before, places, statements, old, new, flags)


def _numbers(edit: Edit) -> list[tuple[int, Edit | None]]:
    """Of each new line of an edit the old number that it goes by."""
    last = max(edit.first, edit.last)
    return [(min(edit.first + index, last), edit) for index in range(len(edit.new_lines))]


def _span(edit: Edit, numbering: Sequence[tuple[int, Edit | None]]) -> tuple[int, int]:
    """First and last new line of an edit; the line before a removal."""
    mine = [line for line, (_, source) in enumerate(numbering, 1) if source is edit]
    if mine:
        return mine[0], mine[-1]
    before = max((line for line, (number, _) in enumerate(numbering, 1) if number < edit.first), default=1)
    return before, before


def _renumber(tree: ast.Module, numbering: Sequence[tuple[int, Edit | None]]) -> None:
    node: Any
    for node in ast.walk(tree):
        if not hasattr(node, "lineno"):
            continue
        node.lineno, node.end_lineno = (numbering[line - 1][0] for line in (node.lineno, node.end_lineno))
        if node.lineno == node.end_lineno and node.end_col_offset < node.col_offset:
            node.col_offset = node.end_col_offset = 0  # of lines that share a number now


def located(tree: ast.Module, first: int, last: int) -> Place:
    """The innermost block that some lines stand in, and the statement that they begin with."""
    block, function, owner = tree.body, None, None
    while True:
        index = next((i for i, node in enumerate(block) if (node.end_lineno or 0) >= first), len(block))
        if index == len(block) or _first(block[index]) >= first:
            return Place(block, index, function, owner)
        node = block[index]
        inner = next((b for b in _blocks(node) if _first(b[0]) <= last and (b[-1].end_lineno or 0) >= first), None)
        if inner is None:
            return Place(block, index, function, owner)
        function = node if isinstance(node, Function) else None if isinstance(node, ast.ClassDef) else function
        owner = node if isinstance(node, ast.ClassDef) else owner
        block = inner


def _within(node: ast.stmt, first: int, last: int) -> bool:
    return first <= _first(node) and (node.end_lineno or node.lineno) <= last


def _first(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield value
        elif isinstance(value, list) and value and isinstance(value[0], ast.ExceptHandler | ast.match_case):
            for each in value:
                yield each.body


def _codes(tree: ast.Module, file: str, flags: int) -> dict[Key, CodeType]:
    """Every function's code; those with the same name and line, such as lambdas, have none."""
    found: dict[Key, CodeType | None] = {}
    for code in compile_nested(tree, file, flags):
        key = code.co_qualname, code.co_firstlineno
        found[key] = None if key in found else code
    return {key: code for key, code in found.items() if code is not None}


def compile_nested(tree: ast.Module, file: str, flags: int) -> Iterator[CodeType]:
    """The code of each function and class of a file or cell, outer ones before those inside them."""
    wanted = (flags & _FUTURES) | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return _nested(compile(tree, file, "exec", flags=wanted, dont_inherit=True))


def _nested(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _nested(constant)
