"""How the user calls an object that could not be put back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from devwidget.capture.restore.code.global_variables import GlobalVariables
from devwidget.capture.restore.objects import Fields
from devwidget.capture.restore.search import SavedPart
from devwidget.capture.restore.tensors import Tensors
from devwidget.records.schema.message import Message

_REGISTERED = ("['_parameters']", "['_buffers']", "['_modules']")
_DEEPEST = 100


class ObjectPaths:
    """Paths of objects, found by going up from them to a root. Only made when there is something to name.

    Args:
        roots: what each root is called, "" for the model, whose parts are called by their path alone.
    """

    def __init__(self, states: Iterable[SavedPart], tables: Iterable[Tensors], roots: Iterable[tuple[str, Any]]) -> None:
        self._roots = {id(root): name for name, root in roots}
        self._up: dict[int, tuple[Any, str]] = {}
        self._fields: set[int] = set()
        for state in states:
            if isinstance(state, Fields):
                self._fields.add(id(state.namespace))
            for label, part in state.label_parts():
                if isinstance(state, GlobalVariables):
                    self._roots.setdefault(id(part), label)
                self._up.setdefault(id(part), (state.owner, label))
        for table in tables:
            for tensor, label, part in table.label_parts():
                self._up.setdefault(id(part), (tensor, label))

    def find_path(self, value: Any) -> str:
        """Such as `body.0.weight.grad` or `log['loss']`; its class where nothing leads to it."""
        labels: list[str] = []
        for _ in range(_DEEPEST):
            if id(value) in self._roots:
                words = self._roots[id(value)] + "".join(reversed(labels))
                return words.removeprefix(".") or Message("the model")
            if id(value) not in self._up:
                break
            owner, label = self._up[id(value)]
            labels.append(self._as_attribute(owner, label))
            value = owner
        return "".join(reversed(labels)).removeprefix(".") or Message("a {kind}", kind=type(value).__name__)

    def _as_attribute(self, owner: Any, label: str) -> str:
        if id(owner) in self._fields:
            return "" if label in _REGISTERED else f".{label[2:-2]}"
        above = self._up.get(id(owner), (None, ""))
        registered = above[1] in _REGISTERED and id(above[0]) in self._fields
        return f".{label[2:-2]}" if registered and label.startswith("['") else label
