"""Find outputs of DataParallel replicas that `gather` cannot join."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from devwidget.capture.object_fields import class_name, class_values, is_a, is_scalar, items_of, key_text, parts_of
from devwidget.capture.tensors import DEEPEST, is_tensor
from devwidget.records.fault_details import NotJoined

_Unjoined = tuple[str, Any, str, str]
"""An output that cannot be joined: its name, then the fields `problem`, `first` and `other` of `NotJoined`."""


def describe_unjoined(outputs: Sequence[Any], dim: int, owner: type, given: str) -> NotJoined | None:
    """Describe the outputs of the replicas that cannot be joined for the same reason as the first one.

    Args:
        outputs: what each replica returned.
        dim: the axis along which tensors are joined.
        owner: the class of the wrapped module.
        given: a tensor argument of `forward`.
    Source: `gather_map` of torch/nn/parallel/scatter_gather.py.
    """
    if len(outputs) < 2:
        return None
    found = list(_find_unjoined(outputs, "output", dim, DEEPEST))
    if not found:
        return None
    _, problem, first, other = found[0]
    names = tuple(name for name, each, *_ in found if each == problem)
    return NotJoined(class_name(owner), names, problem, first, other, given)


def _find_unjoined(values: Sequence[Any], name: str, dim: int, depth: int) -> Iterator[_Unjoined]:
    first = values[0]
    if first is None or not depth:
        return
    others = [each for each in values if not is_tensor(each)]
    if others and len(others) < len(values):
        yield name, "class", class_name(type(others[0])), ""
    elif not others:
        shapes = [list(each.shape) for each in values]
        for shape in shapes[1:]:
            if _size_beside(shape, dim) != _size_beside(shapes[0], dim):
                yield name, "shape", str(shapes[0]), str(shape)
                return
    elif is_a(first, (dict, list, tuple)):
        yield from _find_in_parts(values, name, dim, depth)
    elif is_scalar(first) or not any(each == "__iter__" for each, _ in class_values(type(first), object)):
        yield name, "class", class_name(type(first)), ""


def _size_beside(shape: list[int], dim: int) -> tuple[int, list[int]]:
    """Return the number of axes, and the size along all but one."""
    axis = dim % max(1, len(shape))
    return len(shape), shape[:axis] + shape[axis + 1 :]


def _find_in_parts(values: Sequence[Any], name: str, dim: int, depth: int) -> Iterator[_Unjoined]:
    is_list = is_a(values[0], (list, tuple))
    parts = []
    for each in values:
        pairs = list(enumerate(parts_of(each))) if is_list else items_of(each) or []
        if not all(is_scalar(key) for key, _ in pairs):  # the hash of an object is the user's code
            return
        parts.append(dict(pairs))
    first = parts[0]
    for each in parts[1:]:
        if is_list and len(each) != len(first):
            yield name, "length", str(len(first)), str(len(each))
            return
        if each.keys() != first.keys():
            yield name, "keys", ", ".join(map(key_text, first)), ", ".join(map(key_text, each))
            return
    for key in first:
        yield from _find_unjoined([each[key] for each in parts], f"{name}[{key_text(key)}]", dim, depth - 1)
