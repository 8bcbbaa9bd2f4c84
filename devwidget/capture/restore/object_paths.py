"""How the program reaches an object. Only asked for when there is something to name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from devwidget.capture.object_fields import class_name, is_scalar
from devwidget.capture.restore.fields import FIELDS, attribute_label
from devwidget.capture.restore.global_variables import GLOBALS
from devwidget.capture.restore.keepers import Kept
from devwidget.records.schema.message import Message

_GROUPS = ("_parameters", "_buffers", "_modules")
_DEEPEST = 100


class ObjectPaths:
    """Paths of objects, found by going up from them to a root.

    Args:
        states: what is known of objects, those that lead to others first.
        roots: what each root is called, "" for the model, whose parts are called by their path alone.
    """

    def __init__(self, states: Iterable[Kept], tensors: Iterable[Kept], roots: Iterable[tuple[str, Any]]) -> None:
        self._roots = {id(root): name for name, root in roots}
        self._up: dict[int, tuple[Any, str]] = {}
        self._attributes: set[int] = set()
        """Ids of the dicts whose items are attributes."""
        for state in states:
            for key, part in state.entries():
                if not is_scalar(part):
                    self._add_part(state, key, part)
        for tensor in tensors:
            self._up.setdefault(id(tensor.before.alias), (tensor.owner, ""))
            for label, part in tensor.entries():
                self._up.setdefault(id(part), (tensor.owner, label))

    def _add_part(self, state: Kept, key: Any, part: Any) -> None:
        label = state.keeper.label(key)
        if state.keeper is GLOBALS:
            self._roots.setdefault(id(part), label)
        elif state.keeper is FIELDS and key == "__dict__":
            self._attributes.add(id(part))
        elif id(state.owner) in self._attributes:
            label = attribute_label(key)
            if key in _GROUPS:
                label = ""
                self._attributes.add(id(part))
        self._up.setdefault(id(part), (state.owner, label))

    def find_path(self, value: Any) -> str:
        """Such as `body.0.weight.grad` or `log['loss']`; its class where nothing leads to it."""
        if issubclass(type(value), type):
            return class_name(value)
        labels: list[str] = []
        place = value
        for _ in range(_DEEPEST):
            if id(place) in self._roots:
                words = self._roots[id(place)] + "".join(reversed(labels))
                return words.removeprefix(".") or Message("the model")
            if id(place) not in self._up:
                break
            place, label = self._up[id(place)]
            labels.append(label)
        words = "".join(reversed(labels)).removeprefix(".")
        return words or Message("a {kind}", kind=type(value).__name__)
