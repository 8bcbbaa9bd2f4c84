"""The functions of some files that are alive."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from devwidget.capture.object_fields import copy_items, is_a
from devwidget.capture.source_code.reachable_objects import TooManyObjects, reachable_objects

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
