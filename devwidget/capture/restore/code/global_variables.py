"""Global variables that functions of the program use, in their own module and in other modules of the program."""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from devwidget.capture.patching.patched_function import PatchedFunction
from devwidget.capture.restore.objects import is_own_package

_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL", "DELETE_GLOBAL"})
_ABSENT = object()


class CodeNames(NamedTuple):
    """Names in the code of a function and of those inside it.

    Attributes:
        variables: global ones, builtins among them.
        modules: that are imported while it runs.
        attributes: all names, of which some may be those of a module's variables (`module.name`).
    """

    variables: frozenset[str]
    modules: frozenset[str]
    attributes: frozenset[str]


@functools.lru_cache(4096)
def names_in(code: types.CodeType) -> CodeNames:
    """The names that some code uses."""
    instructions = list(dis.get_instructions(code))
    variables = {each.argval for each in instructions if each.opname in _GLOBAL}
    modules = {each.argval for each in instructions if each.opname == "IMPORT_NAME"}
    inner = [names_in(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    own = CodeNames(frozenset(variables), frozenset(modules), frozenset(code.co_names))
    return CodeNames(*(mine.union(*theirs) for mine, *theirs in zip(own, *inner, strict=True)))


class GlobalVariables:
    """What the global variables that one function uses were."""

    def __init__(self, owner: types.FunctionType) -> None:
        self.owner = owner
        names = names_in(owner.__code__)
        self._kept = [_choose_values(owner.__globals__, names.variables)]
        modules = [*self._kept[0][1].values(), *map(sys.modules.get, names.modules)]
        self._kept += [_choose_values(vars(each), names.attributes) for each in modules if _is_own_module(each)]

    def list_parts(self) -> Iterable[Any]:
        """Where the search goes on."""
        return [value for _, value in self.label_parts()]

    def label_parts(self) -> Iterator[tuple[str, Any]]:
        """Each as the function calls it."""
        for _, values in self._kept:
            yield from ((name, value) for name, value in values.items() if value is not _ABSENT)

    def put_back(self) -> None:
        """Bind again what was bound to something else, and unbind what is new."""
        for namespace, values in self._kept:
            for name, value in values.items():
                now = dict.get(namespace, name, _ABSENT)
                if now is value or _keeps_value(now) or _keeps_value(value):
                    continue
                if value is _ABSENT:
                    dict.pop(namespace, name, None)
                else:
                    dict.__setitem__(namespace, name, value)


def uses_globals(function: types.FunctionType) -> bool:
    """Whether the global variables of a function are the program's: those of libraries are not looked at."""
    return is_own_package(_name_of(function.__globals__))


def _choose_values(namespace: dict[str, Any], names: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    return namespace, {name: dict.get(namespace, name, _ABSENT) for name in names}


def _is_own_module(value: Any) -> bool:
    return type(value) is types.ModuleType and is_own_package(_name_of(vars(value)))


def _name_of(namespace: dict[str, Any]) -> str:
    name = dict.get(namespace, "__name__")
    return name if type(name) is str else ""


def _keeps_value(value: Any) -> bool:
    """Modules, because an import is not undone, and what recordings put in the place of torch's functions."""
    return isinstance(value, types.ModuleType | PatchedFunction)
