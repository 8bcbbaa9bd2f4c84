"""Storages numbered within one snapshot, and which tensors are tied to an earlier one."""

from __future__ import annotations

import torch

from devwidget.capture.snapshot.odd_tensors import is_odd
from devwidget.capture.tensors import is_parameter
from devwidget.records.schema.message import Message

Extent = tuple[int, tuple[int, ...] | None, "int | torch.SymInt"]
"""Number of the storage, shape, offset: tensors are tied if all three are the same."""


class StorageNumbers:
    """Numbers by identity. The first tensor of each storage is held, so that no address can come twice."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._first: list[torch.Tensor | None] = []  # of each storage, whose path and name stand beside it
        self._paths: list[str] = []
        self._names: list[str] = []
        self._met: dict[Extent, str] = {}

    def storage_number(self, key: object, tensor: torch.Tensor | None, path: str, name: str) -> tuple[int, bool]:
        """The number of the storage with this key, and whether it was met before."""
        first = self._first
        number = self._numbers.setdefault(key, len(first))
        if number < len(first):
            return number, True
        first.append(tensor)
        self._paths.append(path)
        self._names.append(name)
        return number, False

    def new_number(self) -> int:
        """A number for bytes that have no storage to be told apart by."""
        return self.storage_number(object(), None, "", "")[0]

    def tied_to(self, extent: Extent, path: str, name: str) -> str:
        """Path of the tensor met first with this extent, "" if this is the first; slices of one storage are not tied."""
        self._note_first(extent[0])
        own = _join_path(path, name)
        met = self._met.setdefault(extent, own)
        return "" if met == own else met

    def part_of(self, number: int) -> str:
        """A note if the storage is that of a parameter, such as the flat one of FSDP1."""
        path = _join_path(self._paths[number], self._names[number])
        return Message("part of {path}", path=path) if is_parameter(self._first[number]) else ""

    def _note_first(self, number: int) -> None:
        """The extent of a storage's first tensor is looked at only when a second one comes."""
        first = self._first[number]
        if first is not None and not is_odd(first):
            path = _join_path(self._paths[number], self._names[number])
            self._met.setdefault((number, tuple(first.shape), first.storage_offset()), path)


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
