"""Find who holds tensors: the variable in the call stack that leads to them, and the largest container on the way."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType, FunctionType
from typing import Any, NamedTuple

import torch

from devwidget.capture import torch_internals
from devwidget.capture.memory.roles import kept_for_backward
from devwidget.capture.modules import is_module
from devwidget.capture.object_fields import (
    class_name,
    dict_of,
    is_a,
    items_of,
    module_name,
)
from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.source_code.reachable_objects import is_users, variables
from devwidget.capture.tensors import device_of, is_tensor, node_of
from devwidget.capture.walk import Place, TooManyObjects, walk
from devwidget.records.memory import allocated_bytes

MOST_OBJECTS = 20_000
"""Objects searched, some 20 ms, the nearest first."""
MOST_ITEMS = 1024
"""Items searched at the end of a container, where growing containers add theirs."""
MOST_SAVED = 20_000
"""Tensors searched in the graphs behind others."""
_DEEPEST = 6
"""Objects between a variable and a tensor."""
_OURS = "devwidget."
_CONTAINERS: tuple[Any, ...] = (list, tuple, set, deque)


class Holder(NamedTuple):
    """What keeps tensors alive.

    Attributes:
        number: its id, which identifies it later. A replaced tensor has another id.
        kind: its class.
        name: expression that reaches it, `self.cache`.
        function: function whose variable the name begins with; "" for a module.
        file: file of the function.
        line: line of the function.
        items: number of items; 0 for a single tensor, and for a module.
        bytes: bytes of the tensors that were found.
        by_graph: most of them are kept by the graphs of other tensors that it holds.
        has_graph: one of the tensors has a graph.
        most_items: maximum number of items; 0 if unbounded.
        files: files of the function, and of the classes through which the name leads.
        numbers: whole numbers in variables of the function, and in fields of the object that has it.
    """

    number: int
    kind: str
    name: str
    function: str
    file: str
    line: int
    items: int
    bytes: int
    by_graph: bool
    has_graph: bool
    most_items: int
    files: tuple[str, ...]
    numbers: Mapping[str, int]


def find_holders(frame: FrameType, bytes_kept: Callable[[torch.Tensor], int]) -> list[Holder]:
    """Return who holds some tensors, among what a frame and its callers can reach, most bytes first.

    No user code runs, and at most `MOST_OBJECTS` objects are searched.

    Args:
        frame: the innermost frame.
        bytes_kept: returns the bytes of a tensor to search for, 0 for others.
    """
    found: dict[int, tuple[Place, int, int, bool]] = {}
    left = MOST_SAVED
    frames: dict[int, tuple[str, Any, FrameType]] = {}
    for variable in variables(frame):  # the innermost call that has a value counts
        frames.setdefault(id(variable[1]), variable)
    for place in _walk_tensors((name, value) for name, value, _ in frames.values()):
        own, behind = bytes_kept(place.value), 0
        has_graph = node_of(place.value) is not None
        if left > 0 and has_graph:
            saved = list(itertools.islice(kept_for_backward([place.value]), left))
            left -= len(saved)
            behind = sum(map(bytes_kept, saved))
        for holder in _choose_holders(place) if own or behind else ():
            _, owned, needed, had_graph = found.get(id(holder.value), (holder, 0, 0, False))
            found[id(holder.value)] = holder, owned + own, needed + behind, had_graph or has_graph
    holders = [
        _make_holder(place, frames[_root_of(place)][2], owned, needed, has_graph=has_graph)
        for place, owned, needed, has_graph in found.values()
    ]
    return sorted(holders, key=lambda each: (-each.bytes, -len(each.name)))


def _choose_holders(place: Place) -> list[Place]:
    """Return the container with most items on the way, else each module on it."""
    way = list(place.way())
    most = max(way, key=lambda each: _count_items(each.value))
    if _count_items(most.value):
        return [most]
    return [each for each in way if is_module(each.value)] or [place]


def _root_of(place: Place) -> int:
    *_, root = place.way()
    return id(root.value)


def find_holders_beside(frame: FrameType, device: torch.device, known: Iterable[torch.Tensor]) -> list[Holder]:
    """Return who holds tensors on a device besides the known ones, as `find_holders`. Each storage counts once."""
    counted = {_storage_key(tensor) for tensor in known}

    def bytes_kept(tensor: torch.Tensor) -> int:
        if device_of(tensor) != device or tensor.layout is not torch.strided:
            return 0
        key, before = _storage_key(tensor), len(counted)
        counted.add(key)
        if len(counted) > before:
            return allocated_bytes(tensor.untyped_storage().nbytes(), device.type)
        return 0

    with hide_from_modes(), torch_internals.DisableTorchFunction():
        return find_holders(frame, bytes_kept)


def _storage_key(tensor: torch.Tensor) -> int:
    if tensor.layout is torch.strided:
        return int(tensor.untyped_storage()._cdata)
    return id(tensor)


def _make_holder(place: Place, frame: FrameType, owned: int, needed: int, *, has_graph: bool) -> Holder:
    code, kind = frame.f_code, class_name(type(place.value))
    if code.co_name == "<module>":
        function = ""
    else:
        function = code.co_qualname.rpartition("<locals>.")[2]
    items = _count_items(place.value)
    return Holder(
        id(place.value),
        kind,
        place.path,
        function,
        code.co_filename,
        frame.f_lineno,
        items,
        owned + needed,
        needed > owned,
        has_graph,
        place.value.maxlen or 0 if type(place.value) is deque else 0,
        tuple(dict.fromkeys([code.co_filename, *_list_files(place)])),
        _read_numbers(place, frame),
    )


def _read_numbers(place: Place, frame: FrameType) -> dict[str, int]:
    fields = dict_of(place.before.value) if place.before is not None else {}
    return {name: value for name, value in (locals_of(frame) | fields).items() if type(value) is int}


def _list_files(place: Place) -> Iterator[str]:
    """Yield the files of the user's classes on the way to a container."""
    for each in place.way():
        for method in dict_of(type(each.value)).values() if is_users(type(each.value)) else ():
            if type(method) is FunctionType:
                yield method.__code__.co_filename


def _count_items(value: Any) -> int:
    count: Callable[[Any], int] | None = next((kind.__len__ for kind in _CONTAINERS if is_a(value, kind)), None)
    if count is not None:
        return count(value)
    return len(items_of(value) or ())


def _walk_tensors(roots: Iterable[tuple[str, Any]]) -> Iterator[Place]:
    """Yield tensors with the way to each, the nearest first."""
    places = walk(roots, enter=_is_looked_into, most=MOST_OBJECTS, deepest=_DEEPEST, most_items=MOST_ITEMS)
    try:
        yield from (place for place in places if is_tensor(place.value))
    except TooManyObjects:
        return


def _is_looked_into(value: Any) -> bool:
    if is_a(value, type):
        return is_users(value)
    return not module_name(type(value)).startswith(_OURS)
