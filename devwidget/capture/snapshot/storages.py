"""Storages numbered within one snapshot, and which tensors are tied to an earlier one."""

from __future__ import annotations

import torch

from devwidget.capture.snapshot.odd_tensors import is_odd
from devwidget.capture.tensors import is_parameter
from devwidget.records.schema.message import Message

Extent = tuple[int, tuple[int, ...] | None, "int | torch.SymInt"]
"""Number of the storage, shape, offset: tensors are tied if all three are the same."""


class Storages:
    """Numbers by identity. The first tensor of each storage is held, so that no address can come twice."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._first: list[tuple[torch.Tensor | None, str, str]] = []  # of each storage, with its path and name
        self._met: dict[Extent, str] = {}

    def number(self, key: int, tensor: torch.Tensor, path: str, name: str) -> tuple[int, bool]:
        """The number of the storage with this key, and whether it was met before."""
        found = self._numbers.get(key)
        if found is not None:
            return found, True
        number = self._numbers[key] = len(self._first)
        self._first.append((tensor, path, name))
        return number, False

    def new(self) -> int:
        """A number for bytes that have no storage to be told apart by."""
        self._first.append((None, "", ""))
        return len(self._first) - 1

    def tied_to(self, extent: Extent, path: str, name: str) -> str:
        """Path of the tensor met first with this extent, "" if this is the first; slices of one storage are not tied."""
        self._note_first(extent[0])
        own = _dotted(path, name)
        met = self._met.setdefault(extent, own)
        return "" if met == own else met

    def part_of(self, number: int) -> str:
        """A note if the storage is that of a parameter, such as the flat one of FSDP1."""
        first, path, name = self._first[number]
        return Message("part of {path}", path=_dotted(path, name)) if is_parameter(first) else ""

    def _note_first(self, number: int) -> None:
        """The extent of a storage's first tensor is looked at only when a second one comes."""
        first, path, name = self._first[number]
        if first is not None and not is_odd(first):
            self._met.setdefault((number, tuple(first.shape), first.storage_offset()), _dotted(path, name))


def _dotted(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
