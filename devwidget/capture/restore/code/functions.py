"""What functions are made of and hold: code, defaults, closures and attributes; and what other callables hold."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

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

    def put_back(self) -> None:
        """Give a function its code and its defaults again; of other callables nothing can be replaced."""
        for name, value in zip(self._read_names(), self._replaceable, strict=True):
            if getattr(self.owner, name) is not value:
                setattr(self.owner, name, value)


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

    def put_back(self) -> None:
        """Set it again, or unset it."""
        full, content = _cell_content(self.owner)
        if self._full and not (full and content is self._content):
            self.owner.cell_contents = self._content
        elif full and not self._full:
            del self.owner.cell_contents


def _cell_content(cell: types.CellType) -> tuple[bool, Any]:
    try:
        return True, cell.cell_contents
    except ValueError:  # not set yet
        return False, None


def is_callee(kind: type) -> bool:
    """Whether instances of a type are searched as callables."""
    return any(kind is each for each in _PARTS)  # by identity: a metaclass may have an `__eq__` of its own
