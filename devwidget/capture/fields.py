"""The fields of an object as Python stores them: no property, `__getattr__` or `__getattribute__` is run."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any


def fields_of(value: object) -> Iterator[tuple[str, Any]]:
    """Name and value of what is in the object's `__dict__` and slots."""
    kind = type(value)
    if kind.__dictoffset__:
        yield from list(_instance_dict(value).items())
    for base in kind.__mro__:
        for name, member in vars(base).items():
            if type(member) is types.MemberDescriptorType and member.__objclass__ is base:
                try:
                    yield name, member.__get__(value)
                except AttributeError:  # the slot is empty
                    continue


def _instance_dict(value: object) -> dict[str, Any]:
    found = object.__getattribute__(value, "__dict__")
    return found if isinstance(found, dict) else {}


def class_values(kind: type, stop: type) -> Iterator[tuple[str, Any]]:
    """What a class and its bases below `stop` define, the nearest definition of a name first."""
    seen: set[str] = set()
    for base in kind.__mro__:
        if base is stop:
            return
        for name, value in list(vars(base).items()):
            if name not in seen:
                seen.add(name)
                yield name, value
