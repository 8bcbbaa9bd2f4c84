"""Functions and classes of the program: what they are made of and hold, and the global variables that they use."""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from devwidget.capture.patching.registry import PatchedFunction
from devwidget.capture.restore.objects import class_namespace, is_own_package, module_of

_PARTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    types.FunctionType: lambda call: (call.__dict__, call.__kwdefaults__, call.__defaults__, call.__closure__),
    types.MethodType: lambda call: (call.__self__, call.__func__),
    types.BuiltinMethodType: lambda call: (call.__self__,),
    types.MethodWrapperType: lambda call: (call.__self__,),
    functools.partial: lambda call: (call.func, call.args, call.keywords, call.__dict__),
    staticmethod: lambda call: (call.__func__,),
    classmethod: lambda call: (call.__func__,),
    property: lambda call: (call.fget, call.fset, call.fdel),
}
_REPLACEABLE = ("__code__", "__defaults__", "__kwdefaults__")
"""Of a function; the names of a closure's variables say which code fits."""


class Callee:
    """A function, a bound method, a property or a partial."""

    def __init__(self, owner: Any) -> None:
        self.owner, self._parts = owner, _PARTS[type(owner)](owner)
        self._replaceable = [getattr(owner, name) for name in self._read_names()]

    def _read_names(self) -> tuple[str, ...]:
        return _REPLACEABLE if type(self.owner) is types.FunctionType else ()

    def list_parts(self) -> Iterable[Any]:
        """Where the search goes on."""
        return self._parts

    def label_parts(self) -> Iterator[tuple[str, Any]]:
        """None has a name that a reader would know."""
        return (("", part) for part in self._parts)

    def has_changed(self) -> bool:
        """Whether a function has other code or other defaults."""
        return any(True for _ in self._list_changed())

    def put_back(self) -> None:
        """Give a function its code and its defaults again; of other callables nothing can be replaced."""
        for name, value in self._list_changed():
            setattr(self.owner, name, value)

    def _list_changed(self) -> Iterator[tuple[str, Any]]:
        for name, value in zip(self._read_names(), self._replaceable, strict=True):
            if getattr(self.owner, name) is not value:
                yield name, value


class Cell:
    """One variable of a closure, which the function may set (`nonlocal`)."""

    def __init__(self, owner: types.CellType) -> None:
        self.owner = owner
        self._full, self._content = _cell_content(owner)

    def list_parts(self) -> Iterable[Any]:
        """What the variable was."""
        return (self._content,)

    def label_parts(self) -> Iterator[tuple[str, Any]]:
        """Its name is the function's affair."""
        yield "", self._content

    def has_changed(self) -> bool:
        """Whether it is set to something else, or only now."""
        full, content = _cell_content(self.owner)
        return full is not self._full or content is not self._content

    def put_back(self) -> None:
        """Set it again, or unset it."""
        if self._full and self.has_changed():
            self.owner.cell_contents = self._content
        elif self.has_changed():
            del self.owner.cell_contents


def _cell_content(cell: types.CellType) -> tuple[bool, Any]:
    try:
        return True, cell.cell_contents
    except ValueError:  # not set yet
        return False, None


def is_callee(kind: type) -> bool:
    """Whether instances of a type are searched as callables."""
    return any(kind is each for each in _PARTS)  # by identity: a metaclass may have an `__eq__` of its own


_CODE = (types.FunctionType, staticmethod, classmethod, property, type)


class ClassValues:
    """The attributes and methods of one class, without what Python itself stores there."""

    def __init__(self, owner: type) -> None:
        self.owner = owner
        self._values = self._read_now()
        self._searches_code = is_own_package(module_of(owner))

    def _read_now(self) -> dict[str, Any]:
        return {name: value for name, value in list(class_namespace(self.owner).items()) if _is_programs(name, type(value))}

    def list_parts(self) -> Iterable[Any]:
        """What the search goes on with: of a library's class not the methods, which are many."""
        return [value for _, value in self.label_parts()]

    def label_parts(self) -> Iterator[tuple[str, Any]]:
        """Each as an attribute."""
        for name, value in self._values.items():
            if self._searches_code or not issubclass(type(value), _CODE):
                yield f".{name}", value

    def _list_changed(self) -> list[tuple[str, Any]]:
        """What was replaced or removed, with its value, and what was added."""
        now = self._read_now()
        pairs = [(name, self._values.get(name, _ABSENT), now.get(name, _ABSENT)) for name in {**now, **self._values}]
        return [(name, old) for name, old, new in pairs if new is not old and not _is_patched(new) and not _is_patched(old)]

    def has_changed(self) -> bool:
        """Whether an attribute is another one."""
        return bool(self._list_changed())

    def put_back(self) -> None:
        """Set what was replaced, remove what was added; without the `__setattr__` of a metaclass."""
        for name, value in self._list_changed():
            type.__delattr__(self.owner, name) if value is _ABSENT else type.__setattr__(self.owner, name, value)


def _is_programs(name: str, kind: type) -> bool:
    """Not a note of Python's, such as `__doc__`; special methods are the program's."""
    return not name.startswith("__") or issubclass(kind, _CODE[:-1])


def _is_patched(value: Any) -> bool:
    """Whether a recording has put it there for its time."""
    return issubclass(type(value), PatchedFunction)


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

    def _list_changed(self) -> Iterator[tuple[dict[str, Any], str, Any]]:
        for namespace, values in self._kept:
            for name, value in values.items():
                now = dict.get(namespace, name, _ABSENT)
                if now is not value and not _keeps_value(now) and not _keeps_value(value):
                    yield namespace, name, value

    def has_changed(self) -> bool:
        """Whether one is bound to something else."""
        return any(True for _ in self._list_changed())

    def put_back(self) -> None:
        """Bind again what was bound to something else, and unbind what is new."""
        for namespace, name, value in self._list_changed():
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
