"""What one simulation replaces, and what is to be done when it is over."""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

from devwidget.capture.patching import registry

_FUNCTIONS = (FunctionType, BuiltinFunctionType)


class Patches:
    """The layers of a simulation in the registry of patches."""

    def __init__(self) -> None:
        self._layers: list[registry.Layer] = []
        self._afterwards: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute, or add one that is not there."""
        there = vars(owner).get(name)
        if isinstance(value, _FUNCTIONS) and isinstance(there, (*_FUNCTIONS, registry.Standin)):
            self._layers.append(registry.wrap(owner, name, lambda original: value))
        else:
            self._layers.append(registry.put(owner, name, value))

    def wrap(self, owner: Any, name: str, wrapper: registry.Wrapper) -> None:
        """Replace a function by `wrapper(function)`; nothing happens where there is none."""
        if hasattr(owner, name):
            self._layers.append(registry.wrap(owner, name, wrapper))

    def hold(self, owner: Any, name: str, value: Any) -> None:
        """Replace a variable that torch itself writes; afterwards it is as before, whatever was written."""
        self._layers.append(registry.put(owner, name, value, always=True))

    def settle(self) -> None:
        """Everything is in place."""
        registry.settle(self._layers)

    def on_undo(self, action: Callable[[], None]) -> None:
        """Have something done when everything is put back."""
        self._afterwards.append(action)

    def undo(self) -> None:
        """Put everything back."""
        while self._afterwards:
            self._afterwards.pop()()
        registry.leave(self._layers)
        self._layers.clear()
