"""Who holds tensors: the variable of the calls under way that leads to them, and the container on the way that has most."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import CellType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch

from devwidget.capture import torch_internals
from devwidget.capture.memory.roles import kept_for_backward
from devwidget.capture.modules import is_module
from devwidget.capture.object_fields import (
    SCALAR_IDS,
    class_name,
    copy_items,
    fields_of,
    is_a,
    items_of,
    key_text,
    module_name,
    names_of,
)
from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.source_code.reachable_objects import is_users
from devwidget.capture.source_code.stack import Owner, stack
from devwidget.capture.tensors import device_of, is_tensor, node_of
from devwidget.records.memory import allocated_bytes

MOST_OBJECTS = 20_000
"""Looked at, some 20 ms; the nearest come first."""
MOST_ITEMS = 1024
"""Of a container, the last ones: what creeps is put at its end."""
MOST_SAVED = 20_000
"""Tensors looked at in the graphs behind others."""
_DEEPEST = 7
_OURS = "devwidget."
_CONTAINERS: tuple[Any, ...] = (list, tuple, set, deque)
_REGISTERED = ("_modules", "_buffers", "_parameters")


class Holder(NamedTuple):
    """What keeps tensors alive.

    Attributes:
        number: its id, by which the same is known again; a tensor that is replaced has another.
        kind: its class.
        name: as the program reaches it, `self.cache`.
        function: whose variable that begins with; "" of a module.
        file: of the code.
        line: where that is.
        items: that it has; 0 for a tensor that is kept alone, and for a module.
        bytes: of the tensors, as far as they were found.
        by_graph: most of them are needed by the graphs of others, which are held.
        most_items: that it can have; 0 where nothing bounds them.
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
    most_items: int


class _Place(NamedTuple):
    """An object, the way to it, and what led there."""

    value: Any
    name: str
    before: _Place | None
    frame: FrameType


def find_holders(frame: FrameType, bytes_kept: Callable[[torch.Tensor], int]) -> list[Holder]:
    """Who holds some tensors, of what a frame and those that called it can reach, most bytes first.

    Nothing of the user's runs, and no more is looked at than `MOST_OBJECTS`.

    Args:
        frame: the innermost.
        bytes_kept: of a tensor that is one of them, 0 of others.
    """
    found: dict[int, tuple[_Place, int, int]] = {}
    left = MOST_SAVED
    for place in _walk_places(frame):
        if not is_tensor(place.value):
            continue
        own, behind = bytes_kept(place.value), 0
        if left > 0 and node_of(place.value) is not None:
            saved = list(itertools.islice(kept_for_backward([place.value]), left))
            left -= len(saved)
            behind = sum(map(bytes_kept, saved))
        for holder in _choose_holders(place) if own or behind else ():
            _, owned, needed = found.get(id(holder.value), (holder, 0, 0))
            found[id(holder.value)] = holder, owned + own, needed + behind
    return sorted(itertools.starmap(_make_holder, found.values()), key=lambda each: (-each.bytes, -len(each.name)))


def _choose_holders(place: _Place) -> list[_Place]:
    """The container on the way that has most items; else each module on it, as any of them may be what somebody made."""
    way = list(_list_way(place))
    most = max(way, key=lambda each: _count_items(each.value))
    return [most] if _count_items(most.value) else [each for each in way if is_module(each.value)] or [place]


def find_holders_beside(frame: FrameType, device: torch.device, known: Iterable[torch.Tensor]) -> list[Holder]:
    """Who holds tensors on a device that are no known ones, as `find_holders`; each storage counts once."""
    counted = {_storage_key(tensor) for tensor in known}

    def bytes_kept(tensor: torch.Tensor) -> int:
        if device_of(tensor) != device or tensor.layout is not torch.strided:
            return 0
        key, before = _storage_key(tensor), len(counted)
        counted.add(key)
        return allocated_bytes(tensor.untyped_storage().nbytes(), device.type) if len(counted) > before else 0

    with hide_from_modes(), torch_internals.DisableTorchFunction():
        return find_holders(frame, bytes_kept)


def _storage_key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else id(tensor)


def _make_holder(place: _Place, owned: int, needed: int) -> Holder:
    code, kind = place.frame.f_code, class_name(type(place.value))
    function = "" if code.co_name == "<module>" else code.co_qualname.rpartition("<locals>.")[2]
    items = _count_items(place.value)
    return Holder(
        id(place.value),
        kind,
        place.name,
        function,
        code.co_filename,
        place.frame.f_lineno,
        items,
        owned + needed,
        needed > owned,
        place.value.maxlen or 0 if type(place.value) is deque else 0,
    )


def _list_way(place: _Place | None) -> Iterator[_Place]:
    while place is not None:
        yield place
        place = place.before


def _count_items(value: Any) -> int:
    count: Callable[[Any], int] | None = next((kind.__len__ for kind in _CONTAINERS if is_a(value, kind)), None)
    if count is not None:
        return count(value)
    return len(items_of(value) or ())


def _walk_places(frame: FrameType | None) -> Iterator[_Place]:
    """Objects with the way to each, the nearest first."""
    seen: dict[int, Any] = {}  # objects too: an id is somebody else's when its object is gone
    level = list(_list_variables(frame))
    for _ in range(_DEEPEST):
        below: list[_Place] = []
        for place in level:
            if id(place.value) in seen or id(type(place.value)) in SCALAR_IDS:
                continue
            if len(seen) >= MOST_OBJECTS:
                return
            seen[id(place.value)] = place.value
            yield place
            below += [_Place(part, place.name + way, place, place.frame) for way, part in _list_parts(place.value)]
        level = below


def _list_variables(frame: FrameType | None) -> Iterator[_Place]:
    modules: dict[int, FrameType] = {}
    for owner, each in stack(frame):
        if owner is not Owner.OURS and owner is not Owner.STEP:
            yield from (_Place(value, name, None, each) for name, value in locals_of(each).items())
        if owner is Owner.USER:
            modules.setdefault(id(each.f_globals), each)
    for each in modules.values():
        yield from (_Place(value, name, None, each) for name, value in copy_items(each.f_globals) if type(name) is str)


def _list_parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds as Python stores it, and what is written behind its name to reach that."""
    kind = type(value)
    if is_a(value, ModuleType) or is_tensor(value) or module_name(kind).startswith(_OURS):
        return
    if is_a(value, type):
        if is_users(value):
            yield from ((f".{name}", part) for name, part in list(names_of(value).items()))
    elif is_a(value, _CONTAINERS):
        yield from ((f"[{at}]", part) for at, part in _last_items(value))
    elif (items := items_of(value)) is not None:
        yield from ((f"[{key_text(key)}]", part) for key, part in items[-MOST_ITEMS:])
    elif kind is MethodType:
        yield from ((".__self__", value.__self__), (".__func__", value.__func__))
    elif kind is FunctionType:
        yield from (
            (f".__closure__.{name}", cell)
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False)
        )
        yield from ((".__defaults__", part) for part in value.__defaults__ or ())
    elif kind is CellType:
        yield from (("", part) for part in _read_cell(value))
    else:
        yield from _list_fields(value)


def _last_items(value: Any) -> Iterator[tuple[int, Any]]:
    base = next(kind for kind in _CONTAINERS if is_a(value, kind))
    items = list(base.__iter__(value))
    first = max(0, len(items) - MOST_ITEMS)
    return enumerate(items[first:], first)


def _list_fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Attributes; the parts of a module as its attributes, which they look like."""
    for name, part in fields_of(value):
        if name in _REGISTERED and is_a(part, dict):
            yield from ((f".{key}", each) for key, each in copy_items(part) if type(key) is str)
        else:
            yield f".{name}", part


def _read_cell(cell: CellType) -> Iterator[Any]:
    try:
        yield cell.cell_contents
    except ValueError:  # not assigned yet
        return
