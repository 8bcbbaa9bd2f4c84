"""Edit the source of a file, find where each edit is, and note which edits were reached.

A line of both versions keeps its old number, so findings of the edited step refer to the original lines.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from devwidget.records.finding import Edit, apply_edits, splice_lines
from devwidget.records.syntax import Function, is_self_attribute, own_lines
from devwidget.trying.code_swap import CodeSwap


class NotTried(Exception):
    """The edits cannot be applied to code that is already loaded."""


class EditPlace(NamedTuple):
    """Position of an edit: index in a statement list, and the enclosing function and class."""

    block: list[ast.stmt]
    number: int
    function: Function | None
    owner: ast.ClassDef | None


def edit_file(file: str, edits: Sequence[Edit], numbers: Sequence[int]) -> tuple[CodeSwap, list[EditPlace]]:
    """Apply edits to a file.

    Args:
        file: its name, or the name of a cell.
        edits: edits of this file.
        numbers: number that marks each edit when it is reached.

    Returns:
        The code of both versions, and the place of each edit in the new one.

    Raises:
        NotTried: if one of the versions does not parse, or the file has changed since the edits were made.
    """
    rows = [row.rstrip("\n") for row in linecache.getlines(file)]
    if not all(edit.fits(rows) for edit in edits):
        raise NotTried(f"{file} has changed")
    numbers_of_rows: list[tuple[int, Edit | None]] = [(number, None) for number in range(1, len(rows) + 1)]
    lines, numbering = apply_edits(rows, edits), splice_lines(numbers_of_rows, edits, _numbers)
    try:
        before, after = ast.parse("\n".join(rows)), ast.parse("\n".join(lines))
        places = [locate_edit(after, *_span(edit, numbering)) for edit in edits]
        _renumber(after, numbering)
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError) as error:
        raise NotTried(str(error)) from error
    for place, number in sorted(zip(places, numbers, strict=True), key=lambda pair: -pair[0].number):
        if place.function is not None:
            last = place.block[min(place.number, len(place.block) - 1)]
            place.block.insert(place.number, make_marker(number, last))
    return CodeSwap(file, before, after), places


def _numbers(edit: Edit) -> list[tuple[int, Edit | None]]:
    """For each new line of an edit, return the old line number that it gets."""
    last = max(edit.first, edit.last)
    return [(min(edit.first + index, last), edit) for index in range(len(edit.new_lines))]


def _span(edit: Edit, numbering: Sequence[tuple[int, Edit | None]]) -> tuple[int, int]:
    """Return the first and last new line of an edit; for a removal, the line before it."""
    before, mine = 1, []
    for line, (number, source) in enumerate(numbering, 1):
        if source is edit:
            mine.append(line)
        elif number < edit.first:
            before = line
    if mine:
        return mine[0], mine[-1]
    return before, before


def _renumber(tree: ast.Module, numbering: Sequence[tuple[int, Edit | None]]) -> None:
    node: Any
    for node in ast.walk(tree):
        if not hasattr(node, "lineno"):
            continue
        node.lineno, node.end_lineno = (numbering[line - 1][0] for line in (node.lineno, node.end_lineno))
        if node.lineno == node.end_lineno and node.end_col_offset < node.col_offset:
            node.col_offset = node.end_col_offset = 0  # of lines that share a number now


def locate_edit(tree: ast.Module, first: int, last: int) -> EditPlace:
    """Return the innermost block that contains some lines, and the index of its first statement there."""
    place = EditPlace(tree.body, 0, None, None)
    while True:
        number = _first_ending_at(place.block, first)
        place = place._replace(number=number)
        if number == len(place.block) or own_lines(place.block[number]).start >= first:
            return place
        node = place.block[number]
        inner = _find_block(node, first, last)
        if inner is None:
            return place
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                place = place._replace(block=inner, function=node)
            case ast.ClassDef():
                place = place._replace(block=inner, function=None, owner=node)
            case _:
                place = place._replace(block=inner)


def _first_ending_at(block: list[ast.stmt], line: int) -> int:
    for number, node in enumerate(block):
        if (node.end_lineno or 0) >= line:
            return number
    return len(block)


def _find_block(node: ast.stmt, first: int, last: int) -> list[ast.stmt] | None:
    """Return the block inside a statement that contains some lines."""
    for block in _blocks(node):
        if own_lines(block[0]).start <= last and (block[-1].end_lineno or 0) >= first:
            return block
    return None


def runs_in_constructor(place: EditPlace) -> bool:
    """Return whether the constructor of the class calls this method."""
    if place.function is None or place.owner is None or place.function not in place.owner.body:
        return False
    for node in place.owner.body:
        if isinstance(node, Function) and node.name == "__init__" and node.args.args:
            return _calls_method(node, place.function.name)
    return False


def _calls_method(init: Function, name: str) -> bool:
    own = init.args.args[0].arg
    return any(isinstance(node, ast.Call) and is_self_attribute(node.func, name, own) for node in ast.walk(init))


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield value
        elif isinstance(value, list) and value and isinstance(value[0], ast.ExceptHandler | ast.match_case):
            for each in value:
                yield each.body


_seen: set[int] = set()


def mark_reached(number: int) -> None:
    """Note that an edit is about to run. The edited code calls this before each edit."""
    _seen.add(number)


def forget_reached() -> None:
    """Forget which edits were reached, before a new trial."""
    _seen.clear()


def reached_edits() -> frozenset[int]:
    """Return the numbers of the edits that have run."""
    return frozenset(_seen)


def make_marker(number: int, place: ast.stmt) -> ast.stmt:
    """Return a statement that calls `mark_reached`, at the location of another statement."""
    # `__import__` is reached from any namespace, and leaves no name of ours in the user's.
    call = ast.parse(f"__import__({__name__!r}, fromlist=['mark_reached']).mark_reached({number})").body[0]
    for node in ast.walk(call):
        ast.copy_location(node, place)
    return call
