"""Find the functions of some files that are alive."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from devwidget.capture.object_fields import copy_items, is_a, names_of
from devwidget.capture.source_code.reachable_objects import TooManyObjects, reachable_objects

_DEEPEST = 50


class LiveFunctions(NamedTuple):
    """The functions of some files.

    Attributes:
        by_file: the functions that were found.
        is_whole: False if the search stopped because the program has too many objects.
    """

    by_file: dict[str, list[FunctionType]]
    is_whole: bool


def find_functions(files: Collection[str], roots: Iterable[Any] = ()) -> LiveFunctions:
    """Find the functions of some files that are reachable from `roots`, the call stack and the globals of the files.

    Args:
        files: names of the files.
        roots: objects to search first. If the search stops early, it has covered what is nearest to them.
    """
    found: dict[str, list[FunctionType]] = {file: [] for file in files}
    first = list(roots)
    try:
        # From the frames below us too: a function may be held by a variable of a running call alone.
        for each in reachable_objects(sys._getframe(1), roots=[*first, *_list_variables(files, first)], deepest=_DEEPEST):
            if type(each) is FunctionType and each.__code__.co_filename in found:
                found[each.__code__.co_filename].append(each)
    except TooManyObjects:
        return LiveFunctions(found, is_whole=False)
    return LiveFunctions(found, is_whole=True)


def _list_variables(files: Collection[str], roots: Iterable[Any]) -> Iterator[Any]:
    """Yield values of the global variables of some files. Functions among the roots may belong to modules outside of
    `sys.modules`.
    """
    namespaces: dict[int, dict[str, Any]] = {}
    for module in list(sys.modules.values()):
        if type(module) is ModuleType and _is_of(module, files):
            namespaces[id(vars(module))] = vars(module)
    for function in _list_functions(roots):
        if function.__code__.co_filename in files:
            namespaces[id(function.__globals__)] = function.__globals__
    for namespace in namespaces.values():
        for _, value in copy_items(namespace):
            yield value


def _list_functions(roots: Iterable[Any]) -> Iterator[FunctionType]:
    """Yield the functions among the roots, and in the bodies of classes among them."""
    for root in roots:
        members = [root]
        if is_a(root, type):
            members += names_of(root).values()
        for member in members:
            if type(member) is FunctionType:
                yield member


def _is_of(module: ModuleType, files: Collection[str]) -> bool:
    file = vars(module).get("__file__")
    return module is sys.modules.get("__main__") or (type(file) is str and file in files)
