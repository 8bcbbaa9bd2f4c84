"""Global variables that functions of the program use, in their own module and in others of the program."""

from __future__ import annotations

import functools
import sys
import types
from typing import Any, NamedTuple

from devwidget.capture.patching.registry import PatchedFunction
from devwidget.capture.restore.keepers import Keeper
from devwidget.capture.source_code.stack import is_users_module

_UNSET = object()


class Variable(NamedTuple):
    """A name in a namespace, and its value."""

    namespace: dict[str, Any]
    name: str
    value: Any

    def has_changed(self) -> bool:
        """Return whether the value has changed. Imports are not undone, and functions replaced by recordings are ignored."""
        now = dict.get(self.namespace, self.name, _UNSET)
        return now is not self.value and not _stays(now) and not _stays(self.value)

    def write(self) -> None:
        """Restore the binding, or delete a new name."""
        if self.value is _UNSET:
            dict.pop(self.namespace, self.name, None)
        else:
            dict.__setitem__(self.namespace, self.name, self.value)


def _stays(value: Any) -> bool:
    return isinstance(value, types.ModuleType | PatchedFunction)


@functools.lru_cache(4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """Return names of variables, modules and attributes in the code of a function and its inner functions."""
    inner = [names_in(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return frozenset(code.co_names).union(*inner)


def _read_variables(function: types.FunctionType) -> list[Variable]:
    """Return variables of the function's module, and of other program modules that it may reach by `module.name`."""
    names, own = names_in(function.__code__), function.__globals__
    if not _is_programs(own):
        return []
    modules = [*(dict.get(own, name) for name in names), *map(sys.modules.get, names)]
    reached = [vars(module) for module in modules if type(module) is types.ModuleType]
    namespaces = {id(namespace): namespace for namespace in (own, *filter(_is_programs, reached))}
    return [Variable(namespace, name, dict.get(namespace, name, _UNSET)) for namespace in namespaces.values() for name in names]


def _is_programs(namespace: dict[str, Any]) -> bool:
    name = dict.get(namespace, "__name__")
    return type(name) is not str or is_users_module(name)


def _same_variables(now: list[Variable], before: list[Variable]) -> bool:
    return not any(each.has_changed() for each in before)


def _write_variables(function: types.FunctionType, before: list[Variable]) -> None:
    for each in before:
        if each.has_changed():
            each.write()


def _list_values(before: list[Variable]) -> list[Any]:
    return [each.value for each in before if each.value is not _UNSET]


GLOBALS = Keeper(_read_variables, _write_variables, _same_variables, _list_values)
"""The global variables that a function uses."""
