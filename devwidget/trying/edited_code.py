"""Edited code: a file before and after some edits, the functions alive that get the new code, and which edits were reached.

Each line that stands in both versions has its old number, so that findings of the edited step stand where they stood before.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import functools
import linecache
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from devwidget.capture.object_fields import copy_items, is_a
from devwidget.capture.source_code.reachable_objects import TooManyObjects, reachable_objects
from devwidget.capture.undo import Undo
from devwidget.records.finding import Edit, apply_edits, splice_lines
from devwidget.records.syntax import is_self_attribute

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
        old, new: the code of each function.
        flags: of the compiler.
    """

    file: str
    edits: Sequence[Edit]
    before: ast.Module
    places: list[Place]
    old: dict[Key, CodeType]
    new: dict[Key, CodeType]
    flags: int

    def changed_functions(self) -> set[Key]:
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
        return {key: code for part in parts for key, code in _function_codes(part, self.file, self.flags).items()}


def edit_file(file: str, edits: Sequence[Edit], numbers: Sequence[int], flags: int) -> EditedFile:
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
        places = [locate_edit(after, *span) for span in spans]
        _renumber(after, numbering)
        for place, number in sorted(zip(places, numbers, strict=True), key=lambda pair: -pair[0].number):
            if place.function is not None:
                place.block.insert(place.number, make_marker(number, place.block[min(place.number, len(place.block) - 1)]))
        old, new = (_function_codes(tree, file, flags) for tree in (before, after))
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError) as error:
        raise NotTried(str(error)) from error
    return EditedFile(file, edits, before, places, old, new, flags)


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


def locate_edit(tree: ast.Module, first: int, last: int) -> Place:
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


def runs_in_constructor(place: Place) -> bool:
    """Whether a method is called by the constructor of its class."""
    if place.function is None or place.owner is None or place.function not in place.owner.body:
        return False
    for init in place.owner.body:
        if isinstance(init, Function) and init.name == "__init__" and init.args.args:
            calls = [node.func for node in ast.walk(init) if isinstance(node, ast.Call)]
            if any(is_self_attribute(func, place.function.name, init.args.args[0].arg) for func in calls):
                return True
    return False


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


def _function_codes(tree: ast.Module, file: str, flags: int) -> dict[Key, CodeType]:
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


_seen: set[int] = set()


def mark_reached(number: int) -> None:
    """Note that the edit with that number is about to run: the edited code calls this right before each."""
    _seen.add(number)


def forget_reached() -> None:
    """A new trial begins."""
    _seen.clear()


def reached_edits() -> frozenset[int]:
    """Numbers of the edits that have run."""
    return frozenset(_seen)


def make_marker(number: int, place: ast.stmt) -> ast.stmt:
    """The statement that calls `mark_reached`, at the line of another."""
    # `__import__` is reached from any namespace, and leaves no name of ours in the user's.
    call = ast.parse(f"__import__({__name__!r}, fromlist=['mark_reached']).mark_reached({number})").body[0]
    for node in ast.walk(call):
        ast.copy_location(node, place)
    return call


_NEAR, _DEEPEST = 2, 50
"""From a class to its method, and to the function that a decorator keeps of that; and modules inside modules count two each."""


class LiveFunctions:
    """The functions of some files: those of their modules and of the classes that a step works on, and, where these are not
    enough, of all that it works on and that the calls under way can reach: that takes as long as some small steps.

    Attributes:
        is_whole: False where the program holds too many objects to be looked through.
    """

    def __init__(self, files: Collection[str], near: Iterable[Any] = (), far: Iterable[Any] = ()) -> None:
        """Of these files; `near` are functions and classes, `far` are objects to look through."""
        self._files, self._near, self._far = files, list(near), list(far)
        self._found: dict[str, list[FunctionType]] = {}
        self._is_further = False
        self.is_whole = True

    def find_in(self, files: Collection[str]) -> dict[str, list[FunctionType]]:
        """Those of a part of the files."""
        if not self._found:
            with contextlib.suppress(TooManyObjects):
                self._sort(reachable_objects(None, roots=self._near, deepest=_NEAR))
                named = [each for each in self._list_named() if type(each) is FunctionType or is_a(each, type)]
                self._sort(reachable_objects(None, roots=named, deepest=_NEAR))
        return {file: self._found[file] for file in files}

    def look_further(self) -> bool:
        """Look through all that can be reached, once; whether there was more, or too much."""
        if self._is_further:
            return False
        before, self._is_further = sum(map(len, self._found.values())), True
        try:
            # From the frames below us too: a function may be held by a variable of a running call alone.
            self._sort(reachable_objects(sys._getframe(1), roots=[*self._far, *self._list_named()], deepest=_DEEPEST))
        except TooManyObjects:
            self.is_whole = False
        return sum(map(len, self._found.values())) > before or not self.is_whole

    def _list_named(self) -> Iterator[Any]:
        """Values of the global variables of the files; functions that were found know modules that are not in `sys.modules`."""
        modules = [module for module in list(sys.modules.values()) if type(module) is ModuleType]
        namespaces = [vars(module) for module in modules if _is_of(module, self._files)]
        namespaces += [function.__globals__ for found in self._found.values() for function in found]
        for namespace in {id(each): each for each in namespaces}.values():
            yield from (value for _, value in copy_items(namespace))

    def _sort(self, values: Iterable[Any]) -> None:
        """Add the functions among some values."""
        known = {id(each) for found in self._found.values() for each in found}
        self._found = {file: self._found.get(file, []) for file in self._files}
        for each in values:
            if type(each) is FunctionType and each.__code__.co_filename in self._found and id(each) not in known:
                self._found[each.__code__.co_filename].append(each)


def look_everywhere(files: Collection[str]) -> LiveFunctions:
    """All functions of some files that can be reached."""
    found = LiveFunctions(files)
    found.look_further()
    return found


def _is_of(module: ModuleType, files: Collection[str]) -> bool:
    file = vars(module).get("__file__")
    return module is sys.modules.get("__main__") or (type(file) is str and file in files)


def pair_with_new_code(edited: EditedFile, functions: Collection[FunctionType]) -> list[tuple[FunctionType, CodeType]]:
    """The functions that the edits change, each with its new code.

    One that is not what the file says by now, or would need other variables around it, stays as it is: its edits are
    never reached.
    """
    changed, pairs = edited.changed_functions(), []
    for function in functions:
        code = function.__code__
        key = code.co_qualname, code.co_firstlineno
        # Python refuses a code object that wants other cells than the function has.
        if key in changed and edited.is_of(code) and code.co_freevars == edited.new[key].co_freevars:
            pairs.append((function, edited.new[key]))
    return pairs


def put_codes_in_place(pairs: Collection[tuple[FunctionType, CodeType]], undo: Undo) -> None:
    """Give functions other code."""
    for function, code in pairs:
        # The function stays the same object: hooks, partials and variables that hold it run the new code too.
        undo.add_step(setattr, function, "__code__", function.__code__)
        function.__code__ = code


def pair_with_code_of_text(
    file: str, old: Sequence[str], new: Sequence[str], functions: Collection[FunctionType]
) -> list[tuple[FunctionType, CodeType]]:
    """The functions that the old lines of a file have made, each with the code, and its numbers, that the new lines would make.

    One that is not what the old lines say, or would need other variables around it, stays as it is.

    Raises:
        SyntaxError: if one of the texts is no program.
    """
    pairs = []
    for function in functions:
        flags = function.__code__.co_flags
        # A file is compiled as a whole, a cell statement by statement, which changes what an inner function knows.
        for is_whole in (True, False):
            before, after = (_codes_in_order("\n".join(rows), file, flags, is_whole) for rows in (old, new))
            key = next((key for key, code in before.items() if code == function.__code__), None)
            code = after.get(key) if key is not None and len(before) == len(after) else None
            if code is not None and code.co_freevars == function.__code__.co_freevars:
                pairs.append((function, code))
                break
    return pairs


def _codes_in_order(text: str, file: str, flags: int, is_whole: bool) -> dict[tuple[str, int], CodeType]:
    """Every function's code by its qualified name, and the how manieth of that name it is."""
    body = ast.parse(text).body
    parts = [ast.Module(body, [])] if is_whole else [ast.Module([node], []) for node in body]
    seen: Counter[str] = Counter()
    found = {}
    for code in (each for part in parts for each in compile_nested(part, file, flags)):
        found[code.co_qualname, seen[code.co_qualname]] = code
        seen[code.co_qualname] += 1
    return found
