"""Functions that are alive, with the code of their edited text for the time of a trial."""

from __future__ import annotations

import gc
from collections.abc import Collection
from types import CodeType, FunctionType

from devwidget.capture.undo import Undo
from devwidget.trying.edited_file import EditedFile


class LiveFunctions:
    """The functions of some files, looked for when they are first asked for: that takes as long as a small step."""

    def __init__(self, files: Collection[str]) -> None:
        self._files = files
        self._found: dict[str, list[FunctionType]] = {}

    def of(self, files: Collection[str]) -> dict[str, list[FunctionType]]:
        """Those of a part of the files."""
        if not self._found:
            self._found = {file: [] for file in self._files}
            for each in gc.get_objects():
                if type(each) is FunctionType and each.__code__.co_filename in self._found:
                    self._found[each.__code__.co_filename].append(each)
        return {file: self._found[file] for file in files}


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
        undo.add(setattr, function, "__code__", function.__code__)
        function.__code__ = code
