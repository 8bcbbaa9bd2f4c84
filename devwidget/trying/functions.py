"""Functions that are alive, with the code of their edited text for the time of a trial."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType

from devwidget.capture.object_fields import copy_items
from devwidget.capture.source_code.reachable_objects import TooManyObjects, reachable_objects
from devwidget.capture.undo import Undo
from devwidget.trying.edited_file import EditedFile, compile_nested

_DEEPEST = 50
"""Modules inside modules count two each."""


class LiveFunctions:
    """The functions of some files, looked for when they are first asked for: that takes as long as a small step."""

    def __init__(self, files: Collection[str]) -> None:
        self._files = files
        self._found: dict[str, list[FunctionType]] = {}

    def of(self, files: Collection[str]) -> dict[str, list[FunctionType]]:
        """Those of a part of the files."""
        if not self._found:
            self._found = {file: [] for file in self._files}
            for each in _functions(self._files):
                if each.__code__.co_filename in self._found:
                    self._found[each.__code__.co_filename].append(each)
        return {file: self._found[file] for file in files}


def _functions(files: Collection[str]) -> Iterator[FunctionType]:
    """Those in modules of the files and in the notebook, and what the calls under way can reach: the model, its loss."""
    modules = (module for module in list(sys.modules.values()) if type(module) is ModuleType)
    namespaces = (copy_items(vars(module)) for module in modules if _is_of(module, files))
    roots = [value for namespace in namespaces for _, value in namespace]
    with contextlib.suppress(TooManyObjects):
        reached = reachable_objects(sys._getframe(1), roots=roots, ours=True, deepest=_DEEPEST)
        yield from (each for each in reached if type(each) is FunctionType)


def _is_of(module: ModuleType, files: Collection[str]) -> bool:
    file = vars(module).get("__file__")
    return module is sys.modules.get("__main__") or (type(file) is str and file in files)


def with_new_code(edited: EditedFile, functions: Collection[FunctionType]) -> list[tuple[FunctionType, CodeType]]:
    """The functions that the edits change, each with its new code.

    One that is not what the file says by now, or would need other variables around it, stays as it is: its edits are
    never reached.
    """
    changed, pairs = edited.changed(), []
    for function in functions:
        code = function.__code__
        key = code.co_qualname, code.co_firstlineno
        if key in changed and edited.is_of(code) and code.co_freevars == edited.new[key].co_freevars:
            pairs.append((function, edited.new[key]))
    return pairs


def put_in_place(pairs: Collection[tuple[FunctionType, CodeType]], undo: Undo) -> None:
    """Give functions other code."""
    for function, code in pairs:
        undo.add_step(setattr, function, "__code__", function.__code__)
        function.__code__ = code


def with_code_of_text(
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
