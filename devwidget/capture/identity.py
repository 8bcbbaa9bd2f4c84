"""Births: which line decided where a tensor lives, held weakly and followed through operations on one device."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from devwidget.capture.call_site import RawSite

if TYPE_CHECKING:
    from devwidget.capture.traffic import Hop

LONGEST_CHAIN = 48
"""Ancestors kept of one tensor. A hidden state that is updated ten thousand times would otherwise keep them all."""


class Birth:
    """How one tensor came to its device.

    Attributes:
        tensor: the tensor, weakly.
        number: place in the trace; -1 for tensors older than the recording.
        call: the torch function that made it.
        site: the user's line; None where it is older, or derived on the same device and in the same dtype.
        direct: the user's line calls that function itself.
        is_move: it was moved here.
        parent: what it was computed from, on the same device.
        origin: what it was moved from.
        dtype: of the tensor.
        hop: the crossing that brought it here, if user code asked for one.
        hops: the last crossings of the data it was computed from, oldest first.
    """

    __slots__ = ("call", "depth", "direct", "dtype", "hop", "hops", "is_move", "number", "origin", "parent", "site", "tensor")

    def __init__(
        self,
        tensor: torch.Tensor,
        number: int,
        *,
        call: str = "",
        site: RawSite | None = None,
        direct: bool = False,
        is_move: bool = False,
        parent: Birth | None = None,
        origin: Birth | None = None,
    ) -> None:
        self.tensor = weakref.ref(tensor)
        self.number = number
        self.call = call
        self.site = site
        self.direct = direct
        self.is_move = is_move
        self.origin = origin
        self.dtype = tensor.dtype
        self.hop: Hop | None = None
        self.hops: tuple[Hop, ...] = () if parent is None else parent.hops
        self.parent = parent if parent is None or parent.depth < LONGEST_CHAIN else parent.root()
        self.depth: int = 0 if self.parent is None else self.parent.depth + 1

    def chain(self) -> Iterator[Birth]:
        """This birth and those that it derives from, newest first."""
        birth: Birth | None = self
        while birth is not None:
            yield birth
            birth = birth.parent

    def root(self) -> Birth:
        """The birth that decided the device."""
        *_, last = self.chain()
        return last


    def dtype_root(self) -> Birth:
        """The birth that decided the dtype: moves between devices are passed through."""
        birth = self
        while (before := birth.parent or birth.origin) is not None and before.dtype == birth.dtype:
            birth = before
        return birth


class _Entry(weakref.ref[Any]):
    """A weak key that knows its slot. Ids are used again after deletion, so a dead key must leave at once."""

    __slots__ = ("birth", "key", "slots")
    birth: Birth
    key: int
    slots: dict[int, _Entry]


def _forget(entry: weakref.ref[Any]) -> None:
    if isinstance(entry, _Entry) and entry.slots.get(entry.key) is entry:
        del entry.slots[entry.key]


class Births:
    """Birth of every tensor seen; forgets a tensor when it dies.

    A tensor that was made out of sight (`nn.Parameter(data)`, a view) has the birth of its storage.
    """

    def __init__(self) -> None:
        self._tensors: dict[int, _Entry] = {}
        self._storages: dict[int, _Entry] = {}

    def __len__(self) -> int:
        return len(self._tensors)

    def get(self, tensor: torch.Tensor) -> Birth | None:
        """What is known of a tensor, None for one never seen."""
        entry = self._tensors.get(id(tensor))
        if entry is None and self._storages and _has_storage(tensor):
            entry = self._storages.get(id(tensor.untyped_storage()))
        return None if entry is None else entry.birth

    def put(self, tensor: torch.Tensor, birth: Birth) -> None:
        """Remember a tensor's birth, in place of an earlier one."""
        _keep(self._tensors, tensor, birth)
        if birth.parent is None and birth.site is not None and _has_storage(tensor):
            _keep(self._storages, tensor.untyped_storage(), birth)


def _has_storage(tensor: torch.Tensor) -> bool:
    """False for sparse, lazy and wrapped tensors, which raise when they are asked."""
    return type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout is torch.strided


def _keep(slots: dict[int, _Entry], key: Any, birth: Birth) -> None:
    entry = _Entry(key, _forget)
    entry.birth, entry.key, entry.slots = birth, id(key), slots
    slots[id(key)] = entry
