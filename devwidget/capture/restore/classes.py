"""What the classes of the program's modules hold themselves, such as a counter over all instances."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Any

from devwidget.capture.restore.objects import class_namespace

_CODE = (types.FunctionType, staticmethod, classmethod, property, type)


class ClassValues:
    """The values of one class, without its code and without what Python itself stores there."""

    def __init__(self, owner: type) -> None:
        self.owner = owner
        self._values = self._now()

    def _now(self) -> dict[str, Any]:
        entries = list(class_namespace(self.owner).items())
        return {name: value for name, value in entries if not name.startswith("__") and _is_data(type(value))}

    def parts(self) -> Iterable[Any]:
        """What the search goes on with."""
        return self._values.values()

    def labelled(self) -> Iterator[tuple[str, Any]]:
        """Each as an attribute."""
        yield from ((f".{name}", value) for name, value in self._values.items())

    def put_back(self) -> None:
        """Set what was replaced, remove what was added; without the `__setattr__` of a metaclass."""
        now = self._now()
        for name in now.keys() - self._values.keys():
            type.__delattr__(self.owner, name)
        for name, value in self._values.items():
            if name not in now or now[name] is not value:
                type.__setattr__(self.owner, name, value)


def _is_data(kind: type) -> bool:
    return not issubclass(kind, _CODE)
