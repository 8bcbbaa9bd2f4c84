"""Edit the source of a file: where each edit is, which edits were reached, and the code objects of both versions."""

from __future__ import annotations
import __future__

import ast
import itertools
import linecache
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from devwidget.capture.source_code.source_files import codes_in
from devwidget.capture.undo import Undo
from devwidget.records.finding import Edit, apply_edits, splice_lines
from devwidget.records.syntax import Function, is_self_attribute, nodes_in, own_lines


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
    return any(is_self_attribute(call.func, name, own) for call in nodes_in(init, ast.Call))


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


# The code objects of functions, and the ones that the edited text of their file defines.


Pair = tuple[FunctionType, CodeType]
Codes = dict[tuple[str, int], CodeType]
"""Code objects by qualified name, and by the position among functions of that name."""
_FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


class CodeSwap:
    """The code of a file before and after some edits.

    Args:
        file: its name.
        before: the syntax of the text that has made its functions.
        after: that of the edited text.
    """

    def __init__(self, file: str, before: ast.Module, after: ast.Module) -> None:
        self._file, self._before, self._after = file, before, after
        self._codes: dict[tuple[int, bool], tuple[Codes, Codes]] = {}

    def find_pairs(self, functions: Iterable[FunctionType]) -> list[Pair]:
        """Return the functions that the edits change, each with its new code.

        Skips a function that does not match the text before the edits, or whose new code needs other closure variables.

        Raises:
            SyntaxError: if one of the texts cannot be compiled.
        """
        pairs = []
        for function in functions:
            code = self._find_code(function)
            if code is not None:
                pairs.append((function, code))
        return pairs

    def _find_code(self, function: FunctionType) -> CodeType | None:
        code = function.__code__
        for is_whole in (True, False):
            before, after = self._compile_both(code.co_flags & _FUTURES, is_whole)
            for key, each in before.items():
                if each != code or _count_named(before, key[0]) != _count_named(after, key[0]):
                    continue
                new = after.get(key)
                # Python refuses a code object that wants other cells than the function has.
                if new is not None and new.co_freevars == code.co_freevars:
                    return new
        return None

    def _compile_both(self, flags: int, is_whole: bool) -> tuple[Codes, Codes]:
        """Compile both versions as one file, or statement by statement as IPython does."""
        key = flags, is_whole
        if key not in self._codes:
            before = _compile_functions(self._before, self._file, *key)
            self._codes[key] = before, _compile_functions(self._after, self._file, *key)
        return self._codes[key]


def _compile_functions(tree: ast.Module, file: str, flags: int, is_whole: bool) -> Codes:
    if is_whole:
        parts = [tree]
    else:
        parts = [ast.Module([node], []) for node in tree.body]
    seen: Counter[str] = Counter()
    found = {}
    for part in parts:
        code = compile(part, file, "exec", flags=flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        for each in itertools.islice(codes_in(code), 1, None):
            found[each.co_qualname, seen[each.co_qualname]] = each
            seen[each.co_qualname] += 1
    return found


def _count_named(codes: Codes, name: str) -> int:
    return sum(each == name for each, _ in codes)


def put_codes_in_place(pairs: Iterable[Pair], undo: Undo) -> None:
    """Replace the code of functions until it is undone."""
    for function, code in pairs:
        # The function stays the same object: hooks, partials and variables that hold it run the new code too.
        undo.add_step(setattr, function, "__code__", function.__code__)
        function.__code__ = code
