"""Remember which line decided the device of each tensor, and the transfers that brought it there. Tensors are held weakly."""

from __future__ import annotations

import itertools
import operator
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.weak import WeakIdRef

from devwidget.capture import torch_internals
from devwidget.capture.source_code.call_sites import RawSite
from devwidget.capture.tensors import wrapped_tensor
from devwidget.records.errors import error_text
from devwidget.records.trace import Held, Operand, Phase


class TensorRef(weakref.ref[Any]):
    """A weak reference to a tensor or a storage."""

    __slots__ = ()


class TensorKeyRef(WeakIdRef):
    """A weak reference to a tensor that is a key."""

    __slots__ = ()


OURS = (TensorRef, TensorKeyRef)


_Tensor, _Parameter, _STRIDED = torch.Tensor, nn.Parameter, torch.strided
LONGEST_CHAIN, MOST_MOVES = 48, 16
"""Ancestors on one device, and moves between devices, kept per tensor. A hidden state that is updated or moved ten thousand
times would otherwise keep them all.
"""


@dataclass(slots=True, eq=False)
class Transfer:
    """A transfer while its data is still being copied."""

    number: int
    source: torch.device
    target: torch.device
    bytes: int
    shape: tuple[int, ...]
    module: str | None
    phase: Phase
    site: RawSite | None
    step: int
    held: Held | None
    meant: str
    chain: tuple[int, ...] = ()
    direct_from: Transfer | None = None
    unsafe: bool = False
    computed: bool = False
    moved: weakref.ref[torch.Tensor] | None = None
    read: tuple[RawSite | None, str | None] | None = None
    into: Operand | None = None
    trains: bool = False
    is_index: bool = False
    loading: tuple[RawSite | None, bool, bool] | None = None


class Birth(TensorRef):
    """How one tensor came to its device, with a weak reference to it.

    Most tensors are derived on one device and in one dtype, and have only what is in the slots. Others have more in their
    `__dict__`.

    Attributes:
        number: place in the trace; below zero for tensors older than the recording.
        asked: for a move in a method with the name of a move, the lines that called it, innermost first; for a tensor created
            in a function that passes on its device argument, the line that passed none.
        built: for a tensor created by a module's constructor, the user's line that built the outermost module.
        call: the torch function that created it.
        site: the user's line; None if it is older, or derived on the same device and in the same dtype.
        direct: the user's line calls that function itself.
        is_move: it was moved here.
        parent: tensor that it was computed from, on the same device.
        origin: tensor that it was moved from.
        dtype: dtype of the tensor.
        moved_on: the data of this parameter was replaced later.
        weights: for the output of a layer, the parameter whose dtype it shares.
        transfer: the transfer that brought it here, if user code requested one.
        transfers: the last transfers of the data that it was computed from, oldest first.
    """

    __slots__ = ("__dict__", "depth", "dtype", "number", "parent", "transfers")
    depth: int
    dtype: torch.dtype
    number: int
    parent: Birth | None
    transfers: tuple[Transfer, ...]
    asked: tuple[RawSite, ...] = ()
    built: RawSite | None = None
    call: str = ""
    direct: bool = False
    is_move: bool = False
    moved_on: bool = False
    origin: Birth | None = None
    site: RawSite | None = None
    transfer: Transfer | None = None
    weights: Birth | None = None

    __eq__ = object.__eq__  # references are equal if their tensors are, which would compare values
    __hash__ = object.__hash__

    @classmethod
    def make_birth(cls, tensor: torch.Tensor, number: int, parent: Birth | None = None, **more: Any) -> Birth:
        """Return a birth with further fields set."""
        birth = cls(tensor)
        birth.number, birth.dtype = number, tensor.dtype
        birth.parent, birth.depth, birth.transfers = None, 0, ()
        if parent is not None:
            birth._set_parent(parent)
        birth.__dict__.update(more)
        birth._forget_far_past()
        return birth

    @classmethod
    def derive_birth(cls, tensor: torch.Tensor, number: int, parent: Birth) -> Birth:
        """Return the birth of a tensor computed in the dtype and on the device of another one."""
        birth = cls(tensor)
        birth.number, birth.dtype = number, parent.dtype
        birth._set_parent(parent)
        return birth

    def _set_parent(self, parent: Birth) -> None:
        self.transfers = parent.transfers
        self.parent = parent = parent if parent.depth < LONGEST_CHAIN else parent.find_root()
        self.depth = parent.depth + 1

    def _forget_far_past(self) -> None:
        birth = self
        for _ in range(MOST_MOVES):
            if birth.origin is None:
                return
            birth = birth.origin.find_root()
        birth.origin = None

    def iterate_chain(self) -> Iterator[Birth]:
        """Yield this birth and its ancestors, newest first."""
        birth: Birth | None = self
        while birth is not None:
            yield birth
            birth = birth.parent

    def find_root(self) -> Birth:
        """Return the birth that decided the device."""
        *_, last = self.iterate_chain()
        return last

    def making_birth(self) -> Birth:
        """Return the birth behind this one; for a copied tensor, the copy."""
        return next((birth for birth in self.iterate_chain() if birth.call), self.find_root())

    def dtype_root(self) -> Birth:
        """Return the birth that decided the dtype. Moves between devices are skipped."""
        birth = self
        while (before := birth.parent or birth.origin or birth.weights) is not None and before.dtype == birth.dtype:
            birth = before
        return birth


class _Ref(TensorRef):
    """A tensor or a storage that has the birth of another tensor."""

    __slots__ = ("birth",)
    birth: Birth

    @classmethod
    def make_ref(cls, holder: torch.Tensor | torch.UntypedStorage, birth: Birth) -> _Ref:
        ref = cls(holder)
        ref.birth = birth
        return ref


class FailedCall(NamedTuple):
    """A call that raised, and its operands: unnamed ones no longer exist when they are needed.

    Attributes:
        number: id of the exception.
        error: its text, because ids are reused.
        operands: only small ones, because this keeps them alive.
    """

    number: int
    error: str
    operands: tuple[torch.Tensor, ...]


FIRST_SWEEP = 1024
"""Tensors remembered before dead ones are removed. A callback at each death would cost more than the birth."""


class Births:
    """The birth of every tensor seen. Ids are reused, so each answer is checked against the tensor.

    A tensor created unseen (`nn.Parameter(data)`, a view) has the birth of its storage.

    Attributes:
        tensors: births by tensor id; the tensor may no longer exist.
        failed: the last failed call with several devices or dtypes.

    Args:
        older: looks up tensors that are not known here.
    """

    def __init__(self, older: Births | None = None) -> None:
        self._older = older
        self.tensors: dict[int, Birth] = {}
        self.failed: FailedCall | None = None
        self._others: dict[int, _Ref] = {}
        self._storages: dict[int, Birth | _Ref] = {}
        self._sweep_at = FIRST_SWEEP

    def __len__(self) -> int:
        self._forget_dead()
        return self._count_entries()

    def clear(self) -> None:
        """Forget all births, except in the source of older ones."""
        for known in (self.tensors, self._others, self._storages):
            known.clear()

    def operands_of(self, error: BaseException) -> tuple[torch.Tensor, ...]:
        """Return the operands of the call that raised this, if it was the last one."""
        failed = self.failed
        if failed is None and self._older is not None:
            failed = self._older.failed
        if failed is None or (failed.number, failed.error) != (id(error), error_text(error)):
            return ()
        return failed.operands

    def _count_entries(self) -> int:
        return len(self.tensors) + len(self._others) + len(self._storages)

    def find_birth(self, tensor: torch.Tensor) -> Birth | None:
        """Return the birth of a tensor, None for one never seen."""
        birth = self.tensors.get(id(tensor))
        if birth is not None and birth() is tensor:
            return birth
        if self._others and (other := self._others.get(id(tensor))) is not None and other() is tensor:
            return other.birth
        if self._storages and (known := self._of_storage(tensor)) is not None:
            return known
        if self._older is not None and (older := self._older.find_birth(tensor)) is not None:
            return older
        behind = wrapped_tensor(tensor)
        if behind is None:
            return None
        return self.find_birth(behind)

    def find_root(self, tensor: torch.Tensor) -> Birth | None:
        """Return the birth that decided the device of a tensor, None for one never seen."""
        birth = self.find_birth(tensor)
        if birth is None:
            return None
        return birth.find_root()

    def birth_of(self, tensor: torch.Tensor) -> Birth:
        """Return the birth of a tensor. One never seen is older than the recording and gets a birth that says so."""
        birth = self.find_birth(tensor)
        if birth is None:
            birth = Birth.make_birth(tensor, -1)
            self.add_birth(tensor, birth)
        return birth

    def put_birth(self, tensor: torch.Tensor, birth: Birth) -> None:
        """Set a tensor's birth, replacing an earlier one."""
        key = id(tensor)
        if birth() is tensor:
            self.tensors[key] = birth
        else:
            self.tensors.pop(key, None)
            self._others[key] = _Ref.make_ref(tensor, birth)
        if birth.parent is None and birth.site is not None:
            if birth.weights is None:
                self.put_storage(tensor, birth)
            elif (storage := _storage_id(tensor)) is not None:  # it is known as long as what was computed lives
                self._storages[storage] = birth
        if self._count_entries() > self._sweep_at:
            self._forget_dead()

    def add_birth(self, tensor: torch.Tensor, birth: Birth) -> None:
        """Set the birth of a tensor that was just derived, or is older. Its storage is unknown."""
        self.tensors[id(tensor)] = birth
        if len(self.tensors) > self._sweep_at:
            self._forget_dead()

    def put_storage(self, tensor: torch.Tensor, birth: Birth) -> None:
        """Set the birth of everything that shares a tensor's storage."""
        if (key := _storage_id(tensor)) is not None:
            self._storages[key] = _Ref.make_ref(tensor.untyped_storage(), birth)

    def _of_storage(self, tensor: torch.Tensor) -> Birth | None:
        """Return the birth of a tensor's storage. Its address is unique while the storage lives."""
        key = _storage_id(tensor)
        known = self._storages.get(key) if key is not None else None
        if known is None or (holder := known()) is None:
            return None
        if isinstance(known, _Ref):
            return known.birth
        # it may have got other data since
        if _storage_id(holder) == key:
            return known
        return None

    def _forget_dead(self) -> None:
        """Remove dead tensors. Each entry is checked twice, however long the recording."""
        births = list(self.tensors.items())
        tensors = map(operator.call, map(operator.itemgetter(1), births))
        self.tensors = dict(itertools.compress(births, map(operator.is_not, tensors, itertools.repeat(None))))
        self._others = {key: known for key, known in list(self._others.items()) if known() is not None}
        self._storages = {key: known for key, known in list(self._storages.items()) if known() is not None}
        self._sweep_at = max(FIRST_SWEEP, 2 * self._count_entries())


def _storage_id(tensor: torch.Tensor) -> int | None:
    """Return the address of a tensor's storage; None for sparse, lazy and wrapped tensors."""
    kind = type(tensor)
    if (kind is not _Tensor and kind is not _Parameter) or tensor.layout is not _STRIDED:
        return None
    try:
        return int(torch_internals.storage_id(tensor))
    except NotImplementedError:  # under `torch.func` a tensor stands for others
        return None
