"""Read live tensors as TensorFacts: number their storages within one snapshot, and find tied tensors."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch

from devwidget.capture.snapshot.odd_tensors import is_odd, read_odd
from devwidget.capture.tensors import gradient_of, is_parameter
from devwidget.records.device import DeviceId
from devwidget.records.schema.message import Message, in_row
from devwidget.records.snapshot import Role, TensorFacts


def draft_class(record: type[Any]) -> Any:
    """Return a class with the fields and defaults of a frozen dataclass with slots. `draft.__class__ = record` converts.

    A frozen class stores each field through `object.__setattr__` (0.9 us for 13 fields). An unfrozen class with the same slots
    stores them directly, and Python lets an object change to a class of the same layout (0.2 us).
    """
    fields: Any = [(field.name, Any, dataclasses.field(default=field.default)) for field in dataclasses.fields(record)]
    return dataclasses.make_dataclass(f"_Draft{record.__name__}", fields, slots=True)


Extent = tuple[int, tuple[int, ...] | None, "int | torch.SymInt"]
"""Number of the storage, shape, offset. Tensors are tied if all three are equal."""


class StorageNumbers:
    """Numbers storages by identity. The first tensor of each storage is kept, so that addresses are unique."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._first: list[tuple[torch.Tensor, str, str]] = []  # of each storage, with path and name
        self._met: dict[Extent, str] = {}

    def storage_number(self, key: object, tensor: torch.Tensor, path: str, name: str) -> tuple[int, bool]:
        """Return the number of the storage with this key, and whether it was seen before."""
        first = self._first
        number = self._numbers.setdefault(key, len(first))
        if number < len(first):
            return number, True
        first.append((tensor, path, name))
        return number, False

    def tied_to(self, extent: Extent, path: str, name: str) -> str:
        """Return the path of the first tensor with this extent, "" if this is the first. Slices of one storage are not tied."""
        self._note_first(extent[0])
        own = _join_path(path, name)
        met = self._met.setdefault(extent, own)
        if met == own:
            return ""
        return met

    def part_of(self, number: int) -> str:
        """Return a note if the storage belongs to a parameter, such as the flat one of FSDP1."""
        first, path, name = self._first[number]
        if is_parameter(first):
            return Message("part of {path}", path=_join_path(path, name))
        return ""

    def _note_first(self, number: int) -> None:
        """Add the extent of a storage's first tensor, which is read only when a second one comes."""
        first, path, name = self._first[number]
        if not is_odd(first):
            self._met.setdefault((number, tuple(first.shape), first.storage_offset()), _join_path(path, name))


def _join_path(path: str, name: str) -> str:
    if path:
        return f"{path}.{name}"
    return name


_Draft = draft_class(TensorFacts)
_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
PLAIN = frozenset({_Tensor, _Parameter})
_COMPUTED = Message("computed with autograd")


class TensorReader:
    """Reads the tensors of one snapshot.

    Attributes:
        storages: numbers them once for the whole snapshot.

    Args:
        gradients: whether `.grad` is read. Its Python object is created on access. This crashes the interpreter if another
            thread computes with the gradient meanwhile, which torch does without Python's lock.
    """

    def __init__(self, *, gradients: bool = True) -> None:
        self.storages = StorageNumbers()
        self._gradients = gradients
        self._shapes: dict[tuple[int, ...], tuple[int, ...]] = {}

    def read_tensor(self, path: str, name: str, role: Role, tensor: torch.Tensor, note: str = "") -> TensorFacts:
        """Return the facts of one tensor that the module at `path` calls `name`.

        This is the inner loop of a snapshot (about 1.2 us with the storage), so it is one function and not three.
        """
        kind = type(tensor)
        if kind is not _Tensor and kind is not _Parameter and is_odd(tensor):
            return self._read_odd(path, name, role, tensor, note)
        try:
            storage = tensor.untyped_storage()
            size, storage_size = tensor.nbytes, storage.nbytes()
            shape = self._shapes.get(tensor.shape) or self._read_shape(tensor.shape)
        except RuntimeError:  # sparse, mkldnn and nested tensors have no storage
            return self._read_odd(path, name, role, tensor, note)
        number, known = self.storages.storage_number(storage._cdata, tensor, path, name)
        if known:
            tied = self.storages.tied_to((number, shape, tensor.storage_offset()), path, name)
        else:
            tied = ""
        device = _device_id(tensor.device)
        if device.kind == "meta":
            note, size, storage_size = join_notes(note, _once_loaded(size)), 0, 0
        grad_bytes, grad_device = 0, None
        try:
            is_leaf = tensor.is_leaf
        except RuntimeError:  # a view whose base was changed in place, as FSDP1 keeps them
            is_leaf = False
        if is_leaf:  # to read the grad of others raises a warning
            grad = tensor.grad if self._gradients else None
            if grad is not None:
                grad_bytes, grad_device = self._read_gradient(grad)
        elif role == "attribute" and not note:
            note = _COMPUTED
        if known and role == "attribute" and not tied and not note:
            note = self.storages.part_of(number)
        dtype = _dtype_word(tensor.dtype)
        facts: TensorFacts = _Draft(
            name, role, shape, dtype, device, size, number, storage_size,
            tensor.requires_grad, grad_bytes, grad_device, tied, note,
        )  # fmt: skip
        facts.__class__ = TensorFacts
        return facts

    def _read_shape(self, shape: torch.Size) -> tuple[int, ...]:
        return self._shapes.setdefault(tuple(shape), tuple(shape))

    def _read_gradient(self, grad: torch.Tensor) -> tuple[int, DeviceId]:
        device = _device_id(grad.device)
        if device.kind == "meta":
            return 0, device
        dense = grad.layout == torch.strided and not is_odd(grad)
        return (grad.nbytes if dense else read_odd(grad).bytes), device

    def _read_odd(self, path: str, name: str, role: Role, tensor: torch.Tensor, note: str) -> TensorFacts:
        reading, device = read_odd(tensor), _device_id(tensor.device)
        key = -id(tensor) if reading.storage_key is None else reading.storage_key
        number, _ = self.storages.storage_number(key, tensor, path, name)
        grad = gradient_of(tensor) if self._gradients and reading.shape is not None else None
        if grad is None:
            grad_bytes, grad_device = (0, None)
        else:
            grad_bytes, grad_device = self._read_gradient(grad)
        real = device.kind != "meta"
        return TensorFacts(
            name=name,
            role=role,
            shape=reading.shape,
            dtype=_dtype_word(tensor.dtype),
            device=device,
            bytes=reading.bytes if real else 0,
            storage=number,
            storage_bytes=reading.storage_bytes if real else 0,
            requires_grad=tensor.requires_grad,
            grad_bytes=grad_bytes,
            grad_device=grad_device,
            tied_to=self.storages.tied_to((number, reading.shape, 0), path, name),
            note=join_notes(note, reading.note),
            placements=reading.placements,
        )


@functools.cache
def _device_id(device: torch.device) -> DeviceId:
    return DeviceId(device.type, device.index if device.type != "cpu" else None)


@functools.cache
def _dtype_word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def join_notes(*notes: str) -> str:
    """Join notes; empty ones are left out."""
    return in_row(notes, "; ")


@functools.lru_cache(maxsize=1024)
def _once_loaded(size: int) -> str:
    return Message("{size} bytes once it is loaded", size=size)
