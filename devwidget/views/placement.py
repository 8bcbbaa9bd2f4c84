"""The module tree as columns: for each row its devices, dtypes, parameters and bytes, with everything below it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TypeVar

from devwidget.records.device import DeviceId
from devwidget.records.schema.message import Message, in_row
from devwidget.records.snapshot import ModuleFacts, Snapshot, TensorFacts

T = TypeVar("T", bound=Hashable)


@dataclass(slots=True)
class PlacementTable:
    """One list for each column, one entry for each row, rows in pre-order.

    A row is a module, or a tensor in a plain attribute: those do not follow `Module.to`, so they are shown by themselves.
    Columns of sums count the row and everything below it, and every storage once.

    Attributes:
        paths: dotted path; the root's is "".
        names: last part of the path; the class for the root.
        classes: class name of a module, "" for a tensor.
        parents: row of the parent, -1 for the root.
        depths: 0 for the root.
        devices, dtypes: bit masks over `device_names` and `dtype_names`.
        parameters: number of elements of the parameters.
        bytes: bytes of storages; `own_bytes` without the rows below.
        gradients: bytes of gradients.
        notes: what a reader should know.
        modules: index in `Snapshot.modules` of the module, or of the tensor's owner.
        tensors: the tensor of a tensor row, None for a module.
    """

    device_names: list[DeviceId] = field(default_factory=list)
    dtype_names: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    devices: list[int] = field(default_factory=list)
    dtypes: list[int] = field(default_factory=list)
    parameters: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    own_bytes: list[int] = field(default_factory=list)
    gradients: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    modules: list[int] = field(default_factory=list)
    tensors: list[TensorFacts | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.paths)

    def devices_of(self, row: int) -> tuple[DeviceId, ...]:
        """Devices in use at a row and below it, accelerators in order, cpu and meta last."""
        return tuple(sorted(_members_of(self.device_names, self.devices[row]), key=device_order))

    def dtypes_of(self, row: int) -> tuple[str, ...]:
        """Dtypes in use at a row and below it."""
        return tuple(_members_of(self.dtype_names, self.dtypes[row]))


def nearest_row(index: dict[str, int], path: str) -> int:
    """Row of `path` or of its nearest ancestor in `index`; the root, 0, at last."""
    while path and path not in index:
        path = path.rpartition(".")[0]
    return index.get(path, 0)


def device_order(device: DeviceId) -> tuple[int, str, int]:
    """Sort key: accelerators by index, then cpu, then meta."""
    if device.is_accelerator:
        rank = 0
    elif device.kind == "cpu":
        rank = 1
    else:
        rank = 2
    return rank, device.kind, -1 if device.index is None else device.index


def tabulate_snapshot(snapshot: Snapshot) -> PlacementTable:
    """The rows of a snapshot."""
    table = PlacementTable()
    row_of_module: list[int] = []
    codes: dict[Hashable, int] = {}
    storages = _OnceBelow(table.parents, table.depths, table.bytes)
    parameters = _OnceBelow(table.parents, table.depths, table.parameters)
    for index, module in enumerate(snapshot.modules):
        if module.parent >= 0:
            parent = row_of_module[module.parent]
        else:
            parent = -1
        row_of_module.append(_add_module(table, module, index, parent))
        for row, tensor in _rows_of_tensors(table, module, index, row_of_module[-1]):
            table.devices[row] |= 1 << _code_of(codes, table.device_names, tensor.device)
            table.dtypes[row] |= 1 << _code_of(codes, table.dtype_names, tensor.dtype)
            size = tensor.storage_bytes or tensor.bytes
            if storages.add(row, tensor.storage, size):
                table.own_bytes[row] += size
            table.gradients[row] += tensor.grad_bytes
            if tensor.role == "parameter":
                parameters.add(row, tensor.tied_to or join_path(module.path, tensor.name), prod(tensor.shape or (0,)))
    _sum_up(table)
    return table


def join_path(path: str, name: str) -> str:
    """Dotted path of a name in a module; container keys (`[0]`) are glued on."""
    if not path:
        return name
    return f"{path}.{name}"


def _add_module(table: PlacementTable, module: ModuleFacts, index: int, parent: int) -> int:
    ties = [each.tied_to for each in module.tensors if each.tied_to]
    tied = [Message("tied to {other}", other=in_row(ties))] if ties else []
    note = in_row((module.wrapper, module.note, *tied), " · ")
    name = module.path.rpartition(".")[2] or module.class_name
    return _add_row(table, module.path, name, module.class_name, parent, module.depth, note, index, None)


def _rows_of_tensors(table: PlacementTable, module: ModuleFacts, index: int, owner: int) -> Iterator[tuple[int, TensorFacts]]:
    """Each tensor with the row that it belongs to; plain attributes get a row of their own."""
    for tensor in module.tensors:
        if tensor.role == "attribute":
            path = join_path(module.path, tensor.name)
            yield _add_row(table, path, tensor.name, "", owner, module.depth + 1, tensor.note, index, tensor), tensor
        else:
            yield owner, tensor


def _add_row(
    table: PlacementTable,
    path: str,
    name: str,
    kind: str,
    parent: int,
    depth: int,
    note: str,
    module: int,
    tensor: TensorFacts | None,
) -> int:
    table.paths.append(path)
    table.names.append(name)
    table.classes.append(kind)
    table.parents.append(parent)
    table.depths.append(depth)
    table.notes.append(note)
    table.modules.append(module)
    table.tensors.append(tensor)
    for column in (table.devices, table.dtypes, table.parameters, table.bytes, table.own_bytes, table.gradients):
        column.append(0)
    return len(table.paths) - 1


class _OnceBelow:
    """Adds sizes to a column so that, after summing up the tree, each key counts once in every subtree.

    When a key returns, its size is taken off again where the two occurrences meet.
    """

    def __init__(self, parents: list[int], depths: list[int], column: list[int]) -> None:
        self.parents, self.depths, self.column = parents, depths, column
        self.last: dict[Hashable, int] = {}

    def add(self, row: int, key: Hashable, size: int) -> bool:
        before = self.last.get(key)
        self.last[key] = row
        if before == row:
            return False
        self.column[row] += size
        if before is not None:
            # rows come in pre-order: the last occurrence alone tells where this subtree joins those that have counted the key
            self.column[self._find_meeting(before, row)] -= size
        return True

    def _find_meeting(self, one: int, other: int) -> int:
        while one != other:
            if self.depths[one] >= self.depths[other]:
                one = self.parents[one]
            else:
                other = self.parents[other]
        return one


def _sum_up(table: PlacementTable) -> None:
    for row in range(len(table) - 1, 0, -1):
        parent = table.parents[row]
        table.devices[parent] |= table.devices[row]
        table.dtypes[parent] |= table.dtypes[row]
        table.parameters[parent] += table.parameters[row]
        table.bytes[parent] += table.bytes[row]
        table.gradients[parent] += table.gradients[row]


def _code_of(codes: dict[Hashable, int], names: list[T], name: T) -> int:
    code = codes.get(name)
    if code is None:
        code = codes[name] = len(names)
        names.append(name)
    return code


def _members_of(names: list[T], mask: int) -> list[T]:
    return [name for bit, name in enumerate(names) if mask >> bit & 1]
