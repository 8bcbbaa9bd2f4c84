"""Functions and classes of the program: what they are made of and hold, and the global variables that they use."""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from devwidget.capture.patching.registry import PatchedFunction
from devwidget.capture.restore.keepers import Keeper, Label
from devwidget.capture.restore.objects import class_namespace, is_own_package, module_of

_UNSET = object()


def _read_function(call: types.FunctionType) -> dict[str, Any]:
    """Code and defaults, and the variables of its closure."""
    cells = zip(call.__code__.co_freevars, call.__closure__ or (), strict=True)
    return {
        "__code__": call.__code__,
        "__defaults__": call.__defaults__,
        "__kwdefaults__": call.__kwdefaults__,
        "__dict__": call.__dict__,
        **{name: _cell_content(cell) for name, cell in cells},
    }


def _cell_content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return _UNSET


def _same_values(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """By identity; what a recording puts in for its time is no change."""
    for name in {**now, **before}:
        values = now.get(name, _UNSET), before.get(name, _UNSET)
        if values[0] is not values[1] and not any(map(_is_patched, values)):
            return False
    return True


def _is_patched(value: Any) -> bool:
    function = value.__func__ if type(value) in (staticmethod, classmethod) else value
    return issubclass(type(function), PatchedFunction)


_FUNCTION = Keeper(_read_function, same=_same_values, parts=lambda before: before.values())
_CALLEES: tuple[tuple[type, Keeper], ...] = (
    (types.FunctionType, _FUNCTION),
    (types.MethodType, Keeper(lambda call: (call.__self__, call.__func__), parts=iter)),
    (types.BuiltinMethodType, Keeper(lambda call: (call.__self__,), parts=iter)),
    (types.MethodWrapperType, Keeper(lambda call: (call.__self__,), parts=iter)),
    (functools.partial, Keeper(lambda call: (call.func, call.args, call.keywords, call.__dict__), parts=iter)),
    (staticmethod, Keeper(lambda call: (call.__func__,), parts=iter)),
    (classmethod, Keeper(lambda call: (call.__func__,), parts=iter)),
    (property, Keeper(lambda call: (call.fget, call.fset, call.fdel), parts=iter)),
)
"""Where the search goes on. A function that has other code is named, as is one whose closure has another variable."""


def callee_keeper(kind: type) -> Keeper | None:
    """How callables of a type are searched; None if they are not."""
    return next((keeper for each, keeper in _CALLEES if each is kind), None)  # a metaclass may have an `__eq__` of its own


def is_callee(kind: type) -> bool:
    """Whether instances of a type are searched as callables."""
    return callee_keeper(kind) is not None


_CODE = (types.FunctionType, staticmethod, classmethod, property, type)


def _read_class(owner: type) -> dict[str, Any]:
    """Attributes and methods of a class of the program; of a library's class not the methods, which are many."""
    values = {name: value for name, value in list(class_namespace(owner).items()) if _is_programs(name, type(value))}
    if is_own_package(module_of(owner)):
        return values
    return {name: value for name, value in values.items() if not issubclass(type(value), _CODE)}


def _is_programs(name: str, kind: type) -> bool:
    """Not a note of Python's, such as `__doc__`; special methods are the program's."""
    return not name.startswith("__") or issubclass(kind, _CODE[:-1])


def _label_attributes(before: dict[str, Any]) -> Iterator[Label]:
    return ((f".{name}", value) for name, value in before.items())


CLASS = Keeper(_read_class, same=_same_values, parts=lambda before: before.values(), labels=_label_attributes)
"""What its attributes hold is put back; an attribute that is another one is named."""


_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL", "DELETE_GLOBAL"})


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


_Variables = list[tuple[dict[str, Any], dict[str, Any]]]
"""Namespaces, each with the values of the names that a function uses."""


def _read_globals(function: types.FunctionType) -> _Variables:
    names = names_in(function.__code__)
    own = _choose_values(function.__globals__, names.variables)
    modules = [*own[1].values(), *map(sys.modules.get, names.modules)]
    return [own, *(_choose_values(vars(each), names.attributes) for each in modules if _is_own_module(each))]


def _list_changed(before: _Variables) -> Iterator[tuple[dict[str, Any], str, Any]]:
    for namespace, values in before:
        for name, value in values.items():
            now = dict.get(namespace, name, _UNSET)
            if now is not value and not _keeps_value(now) and not _keeps_value(value):
                yield namespace, name, value


def _write_globals(function: types.FunctionType, before: _Variables) -> None:
    """Bind again what was bound to something else, and unbind what is new."""
    for namespace, name, value in _list_changed(before):
        if value is _UNSET:
            dict.pop(namespace, name, None)
        else:
            dict.__setitem__(namespace, name, value)


def _label_globals(before: _Variables) -> Iterator[Label]:
    for _, values in before:
        yield from ((name, value) for name, value in values.items() if value is not _UNSET)


GLOBALS = Keeper(
    _read_globals,
    _write_globals,
    lambda now, before: not any(True for _ in _list_changed(before)),
    lambda before: [value for _, value in _label_globals(before)],
    _label_globals,
)
"""The global variables that a function uses."""


def uses_globals(function: types.FunctionType) -> bool:
    """Whether the global variables of a function are the program's: those of libraries are not looked at."""
    return is_own_package(_name_of(function.__globals__))


def _choose_values(namespace: dict[str, Any], names: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    return namespace, {name: dict.get(namespace, name, _UNSET) for name in names}


def _is_own_module(value: Any) -> bool:
    return type(value) is types.ModuleType and is_own_package(_name_of(vars(value)))


def _name_of(namespace: dict[str, Any]) -> str:
    name = dict.get(namespace, "__name__")
    return name if type(name) is str else ""


def _keeps_value(value: Any) -> bool:
    """Modules, because an import is not undone, and what recordings put in the place of torch's functions."""
    return isinstance(value, types.ModuleType | PatchedFunction)
