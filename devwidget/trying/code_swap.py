"""The code objects of functions, and the ones that the edited text of their file defines."""

from __future__ import annotations
import __future__

import ast
import itertools
from collections import Counter
from collections.abc import Iterable
from types import CodeType, FunctionType

from devwidget.capture.source_code.source_files import codes_in
from devwidget.capture.undo import Undo

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
