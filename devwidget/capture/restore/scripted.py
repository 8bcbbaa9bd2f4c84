"""Attributes of scripted modules, which live in C++."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import is_exactly

_SET_AGAIN = (int, float, bool, str, complex, list, dict, type(None))
"""Types that come out of C++ as copies; tensors and modules are reached as themselves."""


class ScriptedState:
    """The attributes of one scripted module, without those of its children."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._module = object.__getattribute__(owner, "__dict__").get("_c")
        self._values = dict(self._read_attributes())

    def _read_attributes(self) -> Iterator[tuple[str, Any]]:
        if self._module is None:  # the shell that `torch.jit.trace` returns around the real one
            return
        kinds: Any = (torch_internals.ParameterDict, torch_internals.BufferDict)
        for kind in kinds:
            yield from kind(self._module).items()
        concrete = object.__getattribute__(self.owner, "__dict__").get("_concrete_type")
        for name in concrete.get_attributes() if concrete is not None else ("training",):
            if self._module.hasattr(name):
                yield name, self._module.getattr(name)

    def _read_children(self) -> Iterable[tuple[str, Any]]:
        children = object.__getattribute__(self.owner, "__dict__").get("_modules")
        known = type(children).__name__ == "OrderedModuleDict"
        return list(children.items()) if known else []

    def list_parts(self) -> Iterable[Any]:
        """Parameters, buffers, attributes and children."""
        return [value for _, value in self.label_parts()]

    def label_parts(self) -> Iterator[tuple[str, Any]]:
        """Each as the class calls it."""
        for name, value in [*self._values.items(), *self._read_children()]:
            yield f".{name}", value

    def put_back(self) -> None:
        """Tensors by identity, all else by value."""
        for name, value in self._read_attributes():
            before = self._values.get(name, value)
            if isinstance(before, torch.Tensor):
                if before is not value:
                    self._module.setattr(name, before)
            elif is_exactly(before, _SET_AGAIN) and before != value:
                self._module.setattr(name, before)


def is_scripted(kind: type) -> bool:
    """Whether instances of a class keep their attributes in C++."""
    return issubclass(kind, torch.jit.ScriptModule)
