"""The functions of some files that are alive."""

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
        by_file: those that were found.
        is_whole: False where the program holds too many objects to be looked through.
    """

    by_file: dict[str, list[FunctionType]]
    is_whole: bool


def find_functions(files: Collection[str], roots: Iterable[Any] = ()) -> LiveFunctions:
    """The functions of some files that these objects, the calls under way and the variables of the files can reach.

    Args:
        files: their names.
        roots: what is looked through first: where there is too much, what is nearest to them is found.
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
    """Values of the global variables of some files; functions of the roots know modules that are not in `sys.modules`."""
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
    """Those among the roots, and in the bodies of classes among them."""
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
