"""How the program reaches an object. Only asked for when there is something to name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

from devwidget.capture.object_fields import class_name, is_a
from devwidget.capture.restore.fields import is_own_class
from devwidget.capture.walk import TooManyObjects, walk
from devwidget.records.schema.message import Message

_MOST, _DEEPEST = 50_000, 100


def name_objects(values: Sequence[Any], roots: Iterable[tuple[str, Any]]) -> dict[int, str]:
    """Names such as `body.0.seen` or `log['loss']` of some objects, by id; the class where nothing leads to one.

    Args:
        values: the objects.
        roots: what each root is called, "" for the model, whose parts are called by their path alone.
    """
    names = {id(value): _name_class(value) for value in values}
    unnamed = {id(value) for value in values if not is_a(value, type)}
    with contextlib.suppress(TooManyObjects):
        for place in walk(roots, enter=_is_entered, most=_MOST, deepest=_DEEPEST):
            if id(place.value) in unnamed:
                names[id(place.value)] = place.path.removeprefix(".") or Message("the model")
    return names


def _name_class(value: Any) -> str:
    if is_a(value, type):
        return class_name(value)
    return Message("a {kind}", kind=class_name(type(value)))


def _is_entered(value: Any) -> bool:
    return not is_a(value, type) or is_own_class(value)
