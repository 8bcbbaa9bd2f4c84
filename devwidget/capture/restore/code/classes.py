"""What the program's classes hold themselves, such as a counter over all instances, and their methods."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Any

from devwidget.capture.patching.patched_function import PatchedFunction
from devwidget.capture.restore.objects import class_namespace, is_own_package, module_of

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

    def put_back(self) -> None:
        """Set what was replaced, remove what was added; without the `__setattr__` of a metaclass."""
        now = self._read_now()
        for name in now.keys() - self._values.keys():
            if not _is_patched(now[name]):
                type.__delattr__(self.owner, name)
        for name, value in self._values.items():
            found = now.get(name, now)
            if found is not value and not _is_patched(found) and not _is_patched(value):
                type.__setattr__(self.owner, name, value)


def _is_programs(name: str, kind: type) -> bool:
    """Not a note of Python's, such as `__doc__`; special methods are the program's."""
    return not name.startswith("__") or issubclass(kind, _CODE[:-1])


def _is_patched(value: Any) -> bool:
    """Whether a recording has put it there for its time."""
    return issubclass(type(value), PatchedFunction)
