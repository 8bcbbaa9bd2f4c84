"""Find how the program reaches an object. Used only if there is something to report."""

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
    """Return names such as `body.0.seen` or `log['loss']` of objects, by id; the class if nothing leads to one.

    Args:
        values: the objects.
        roots: name of each root; "" for the model, whose parts are named by their path alone.
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
