"""Find who keeps memory of devices in use: variables, displayed results, the frames of the last error; and what frees it."""

from __future__ import annotations

import contextlib
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from types import FrameType, FunctionType, MethodType, TracebackType
from typing import Any, NamedTuple

import torch

from devwidget.capture import torch_internals
from devwidget.capture.memory.object_graph import LEFT, ObjectGraph, Root, Roots, last_errors
from devwidget.capture.object_fields import class_name, copy_items, dict_of, is_a, items_of
from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.capture.recording.event_log import device_id
from devwidget.capture.source_code.frames import is_of_program
from devwidget.capture.source_code.source_files import is_outdated
from devwidget.capture.source_code.stack import is_users_class, is_users_code
from devwidget.capture.source_code.statements import keeping_line
from devwidget.capture.tensors import (
    device_of,
    gradient_of,
    is_module,
    is_optimizer,
    is_parameter,
    is_tensor,
    node_of,
    read_attribute,
)
from devwidget.capture.walk import Place, TooManyObjects, walk
from devwidget.records.device import CPU, DeviceId
from devwidget.records.held_memory import DeviceHolders, HeldMemory, MemoryHolder
from devwidget.records.memory import DeviceMemory, RefusedBytes, allocated_bytes
from devwidget.records.site import Site

MOST_OBJECTS = 200_000
"""Objects searched, up to two seconds, the nearest first."""
MOST_HOLDERS = 12
"""Holders of a device that are listed, most bytes first."""
_DEEPEST = 6
_MOST_NAMED = 20_000
_CLEARED: tuple[Any, ...] = (list, dict, set, deque)
_CONTAINERS: tuple[Any, ...] = (*_CLEARED, tuple)
_NOT_WRITTEN = re.compile(r"<|\.__\w+__")
"""Parts of paths that code cannot have: a key without a text, the content of a function."""
_PLACES = ("variable", "local", "output", "traceback")
_OTHER, _OF_LIBRARY, _ERROR = 3, 6, 7
_RANKS: dict[int, Any] = {
    0: torch.nn.Module,
    1: torch.optim.Optimizer,
    2: _CONTAINERS,
    4: torch.Tensor,
    5: (FunctionType, MethodType),  # what it closes over, or its object, has a name elsewhere
    _ERROR: (BaseException, TracebackType, FrameType),
}
"""The order in which roots get the storages that they reach. Other classes have the place `_OTHER`."""


class _Storage(NamedTuple):
    key: int
    device: DeviceId
    bytes: int


@dataclass(slots=True)
class _Row:
    """Storages that one object keeps, and bytes by role.

    Attributes:
        root: number of its root.
        holder: number of the object.
        is_removable: whether `del` removes it from what holds it.
        classes: of the objects on the way to it.
    """

    root: int
    holder: int
    is_removable: bool = False
    classes: tuple[type, ...] = ()
    keys: set[int] = field(default_factory=set)
    roles: Counter[str] = field(default_factory=Counter)


def find_full_device(held: HeldMemory, refused: RefusedBytes | None) -> DeviceHolders | None:
    """Return the device that was full; the fullest one if the exception named none."""
    for each in held.devices:
        if refused is not None and each.device.index == refused.gpu:
            return each
    return max(held.devices, key=lambda each: each.allocated, default=None)


def find_memory_holders(memory: Iterable[DeviceMemory], *, error: BaseException | None = None, frame: FrameType) -> HeldMemory:
    """Return who keeps memory of each device in use. Only reads; no user code runs.

    Args:
        memory: the devices, with what their allocators report.
        error: an exception whose frames may keep tensors, besides the last one.
        frame: innermost running frame.
    """
    with hide_from_modes(), torch_internals.DisableTorchFunction():
        search = _Search(Roots(last_errors(error), frame))
        found = [search.list_holders(each) for each in memory if each.device != CPU]
    return HeldMemory(tuple(each for each in found if each.allocated))


class _Search:
    def __init__(self, roots: Roots) -> None:
        given = sorted(roots.found, key=_rank)
        roots.found.clear()
        self.graph = graph = ObjectGraph([root.value for root in given], MOST_OBJECTS, roots.namespaces)
        references = graph.count_references()
        self.roots = [root._replace(value=None) for root in given]
        given.clear()
        self.storages = {number: each for number, value in enumerate(graph.objects) if (each := _storage_of(value)) is not None}
        leading = graph.keep_leading_to(self.storages)
        for root, start in zip(self.roots, graph.starts, strict=True):
            references[start] += root.is_reference
        self.references = references
        self.elsewhere = set(graph.list_referenced_elsewhere(leading, references))
        self.reached: list[set[int]] = []
        self.rows: dict[tuple[DeviceId, int, int], _Row] = {}
        self._assign_storages()

    def _assign_storages(self) -> None:
        taken: set[int] = set()
        library: tuple[int, int] | None = None
        for index, start in enumerate(self.graph.starts):
            before = self.graph.reach([start])
            found = [number for number in before if number in self.storages]
            self.reached.append({self.storages[number].key for number in found})
            is_librarys = _is_librarys(self.roots[index])
            if is_librarys:
                library = library or (index, start)
            for number in found:
                storage = self.storages[number]
                if storage.key in taken:
                    continue
                taken.add(storage.key)
                path = _path_to(number, before)
                place = library if library and is_librarys else (index, self._choose_holder(path))
                row = self.rows.setdefault((storage.device, *place), _Row(*place))
                row.keys.add(storage.key)
                row.roles[self._role_of(path)] += storage.bytes

    def _choose_holder(self, path: list[int]) -> int:
        """Return the fullest container outside of modules and objects, else the first module, optimizer or tensor."""
        values = [self.graph.objects[number] for number in path]
        first = next(at for at, value in enumerate(values) if is_tensor(value))
        most, holder, module = 1, first, first
        for at, value in enumerate(values[:first]):
            if is_optimizer(value):
                return path[at]
            if is_module(value):
                module = min(module, at)
            elif _count_items(value) > most and not _is_inner(values[max(0, at - 2) : at], value):
                most, holder = _count_items(value), at
        return path[holder if most > 1 else module]

    def _role_of(self, path: list[int]) -> str:
        if any(map(self.graph.is_node, path)):
            return "graph"
        values = [self.graph.objects[number] for number in path]
        if is_tensor(values[-2:][0]) and gradient_of(values[-2:][0]) is values[-1]:
            return "gradients"
        if is_parameter(values[-1]):
            return "parameters"
        if any(is_optimizer(value) for value in values):
            return "optimizer"
        return "tensors"

    # -- what a device has

    def list_holders(self, memory: DeviceMemory) -> DeviceHolders:
        """Return the holders of one device."""
        rows = [row for (device, *_), row in self.rows.items() if device == memory.device]
        rows.sort(key=lambda row: -row.roles.total())
        holders = [self._make_holder(row) for row in rows[:MOST_HOLDERS]]
        rest = memory.activations - sum(row.roles.total() for row in rows)
        if rest > 0:
            holders.append(MemoryHolder("elsewhere", "", "", "", MOST_OBJECTS if self.graph.is_cut else 0, rest))
        return DeviceHolders(memory.device, memory.total, memory.activations, tuple(holders))

    def _make_holder(self, row: _Row) -> MemoryHolder:
        name = self._name_of(row)
        root, value = self.roots[row.root], self.graph.objects[row.holder]
        frees, freed = self._find_freeing(row, name)
        tensors = [value] if is_tensor(value) else [self.graph.objects[number] for number in self.graph.links[row.holder]]
        return MemoryHolder(
            root.kind,
            name,
            _function_of(root),
            class_name(type(value)),
            items=_count_items(value) if is_a(value, _CONTAINERS) else 0,
            bytes=row.roles.total(),
            **{role: row.roles[role] for role in ("parameters", "gradients", "optimizer", "graph")},
            frees=frees,
            freed=freed,
            also=tuple(dict.fromkeys(self._list_others(row))),
            has_tensors=all(map(is_tensor, tensors)),
            site=_find_line(root, row.classes, name),
            most_items=value.maxlen or 0 if type(value) is deque else 0,
            has_graph=any(node_of(each) is not None for each in tensors if is_tensor(each)),
        )

    def _name_of(self, row: _Row) -> str:
        """Return the expression for what holds it. What has none, such as a list behind an iterator, counts for its root."""
        if _is_librarys(self.roots[row.root]):
            return ""
        name, start = self.roots[row.root].name, self.graph.starts[row.root]
        holder = self.graph.objects[row.holder]
        places = walk([(name, self.graph.objects[start])], enter=is_of_program, most=_MOST_NAMED, deepest=_DEEPEST)
        with contextlib.suppress(TooManyObjects):
            for place in places:
                if place.value is holder and not _NOT_WRITTEN.search(place.path):
                    row.is_removable = _is_removable(place)
                    row.classes = tuple(type(each.value) for each in place.way())
                    return place.path
        row.holder = start
        return name

    def _list_others(self, row: _Row) -> Iterator[str]:
        """Yield the names of other variables that keep some of these bytes."""
        root = self.roots[row.root]
        for other, keys in zip(self.roots, self.reached, strict=True):
            is_named = other.name and other.kind != "traceback" and not _is_librarys(other)
            is_alias = other.kind == "output" and (root.kind == "output" or not other.name.startswith("Out"))
            if is_named and not is_alias and other.name != root.name and keys & row.keys:
                yield other.name

    # -- what frees it

    def _find_freeing(self, row: _Row, name: str) -> tuple[str, int]:
        """Return code that frees memory that nothing else keeps, and its bytes; ("", 0) if there is none."""
        root, value = self.roots[row.root], self.graph.objects[row.holder]
        device = next(self.storages[n].device for n in self.storages if self.storages[n].key in row.keys)
        cut: set[int] = set()
        gone = {row.root}
        match root.kind:
            case "output" if not root.name.startswith(LEFT):
                code, gone = "%reset -f out", self._list_roots("output")
            case "traceback":
                code, gone = "", self._list_roots("traceback")
            case _ if row.holder == self.graph.starts[row.root]:
                code = f"del {name}"
            case _ if is_a(value, _CLEARED):
                code, cut, gone = f"{name}.clear()", {row.holder}, set()
            case _ if row.is_removable and self.references[row.holder] == 1 and row.holder not in self.elsewhere:
                code, cut, gone = f"del {name}", {row.holder}, set()
            case _:
                return "", 0
        freed = self._sum_freed(device, gone, cut)
        if not freed:
            return "", 0
        if code and row.holder in self.graph.reach(self.graph.links[row.holder]):
            code += "; gc.collect()"
        return code, freed

    def _list_roots(self, kind: str) -> set[int]:
        return {index for index, root in enumerate(self.roots) if root.kind == kind}

    def _sum_freed(self, device: DeviceId, gone: Set[int], cut: Set[int]) -> int:
        """Return the bytes of a device that are freed once some roots and the content of some objects are gone."""
        starts = [start for index, start in enumerate(self.graph.starts) if index not in gone]
        left = self.graph.reach([*starts, *self.elsewhere], cut)
        kept = {self.storages[number].key for number in left if number in self.storages}
        there = {each.key: each.bytes for each in self.storages.values() if each.device == device}
        return sum(size for key, size in there.items() if key not in kept)


def _rank(root: Root) -> tuple[int, int]:
    """Return the place of a root in the order in which storages are assigned."""
    kind = next((rank for rank, kinds in _RANKS.items() if is_a(root.value, kinds)), _OTHER)
    if kind < _ERROR and _is_librarys(root):
        kind = _OF_LIBRARY
    is_alias = root.kind == "output" and not root.name.startswith("Out")
    return kind, 2 * _PLACES.index(root.kind) + is_alias


def _is_librarys(root: Root) -> bool:
    return root.frame is not None and not is_users_code(root.frame.f_code)


def _path_to(number: int, before: dict[int, int]) -> list[int]:
    path = []
    while number >= 0:
        path.append(number)
        number = before[number]
    return path[::-1]


def _storage_of(value: Any) -> _Storage | None:
    """Return the storage of a tensor on an accelerator."""
    if not is_tensor(value) or read_attribute(value, "layout") is not torch.strided:
        return None
    device = device_of(value)
    if device.type == CPU.kind:
        return None
    try:
        storage = torch.Tensor.untyped_storage(value)
    except (RuntimeError, NotImplementedError):  # of a class that wraps other tensors
        return None
    return _Storage(int(storage._cdata), device_id(device), allocated_bytes(storage.nbytes(), device.type))


def _is_removable(place: Place) -> bool:
    """Return whether `del` removes an object from the one that holds it: not from a tuple."""
    if place.before is None:
        return True
    around = place.before.value
    return is_a(around, (list, dict)) or is_module(around) or place.path.rpartition(".")[2] in dict_of(around)


def _is_inner(around: list[Any], value: Any) -> bool:
    """Return whether a container is an object's `__dict__`, or one in which a module registers its parts."""
    for each in around:
        fields = dict_of(each)
        if fields is value:
            return True
        if is_module(each) and any(name.startswith("_") and part is value for name, part in copy_items(fields)):
            return True
    return False


def _count_items(value: Any) -> int:
    kinds: tuple[Any, ...] = (list, tuple, set, deque)
    for kind in kinds:
        if is_a(value, kind):
            return int(kind.__len__(value))
    return len(items_of(value) or ())


def _find_line(root: Root, classes: Iterable[type], name: str) -> Site | None:
    """Return the line in the file of the variable, else in that of a class on the way."""
    if root.frame is not None and is_outdated(root.frame.f_code):
        return None
    line = root.frame.f_lineno if root.frame is not None else 0
    found = keeping_line(root.file, line, name)
    for method in (method for kind in classes if is_users_class(kind) for method in dict_of(kind).values()):
        if found is None and type(method) is FunctionType:
            found = keeping_line(method.__code__.co_filename, 0, name)
    return found


def _function_of(root: Root) -> str:
    if root.frame is None:
        return ""
    return root.frame.f_code.co_qualname.rpartition("<locals>.")[2]
