"""Tensors that are not one dense block: lazy, sharded, fake, sparse, nested, and subclasses that wrap others."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import class_name, find_class_attribute, is_a, module_name
from devwidget.capture.patching.mode_stack import reading_values
from devwidget.capture.tensors import read_attribute, sparse_parts
from devwidget.records.schema.message import Message, in_row


class OddTensorReading(NamedTuple):
    """Facts of an odd tensor.

    Attributes:
        shape: None while uninitialised; -1 for a ragged dimension.
        bytes, storage_bytes: on this process' device.
        note: what a reader should know.
        storage_key: identity of the storage where there is just one, None otherwise.
        placements: as `TensorFacts.placements`.
    """

    shape: tuple[int, ...] | None
    bytes: int
    storage_bytes: int
    note: str
    storage_key: int | None = None
    placements: str = ""


def is_odd(tensor: torch.Tensor) -> bool:
    """Return whether the tensor must not be read as one dense block."""
    return is_lazy(tensor) or _is_fake(tensor) or _can_flatten(tensor) or read_attribute(tensor, "is_nested")


def is_lazy(tensor: torch.Tensor) -> bool:
    """Return whether it is a parameter or buffer of a lazy module before its first batch."""
    return issubclass(type(tensor), _UNINITIALISED)


_UNINITIALISED: type = getattr(torch.nn.parameter, "UninitializedTensorMixin")  # noqa: B009  # torch does not list it


def is_distributed(tensor: torch.Tensor) -> bool:
    """Return whether it is a DTensor."""
    kind = type(tensor)
    return module_name(kind).startswith("torch.distributed") and find_class_attribute(kind, "placements") is not None


def local_part(tensor: Any) -> torch.Tensor:
    """Return what this rank holds of a tensor."""
    here: torch.Tensor = tensor._local_tensor if is_distributed(tensor) else tensor
    return here


def _can_flatten(tensor: torch.Tensor) -> bool:
    return find_class_attribute(type(tensor), "__tensor_flatten__") is not None


def read_odd(tensor: torch.Tensor) -> OddTensorReading:
    """Return size, bytes and a note. A tensor of an unknown kind is read as far as possible."""
    if is_lazy(tensor):
        return OddTensorReading(None, 0, 0, Message("lazy: not initialised yet"))
    if _is_fake(tensor):
        return OddTensorReading(_read_shape(tensor), 0, 0, Message("fake: no data behind it"))
    try:
        with reading_values():
            reading = _of_parts(tensor, *_dense_parts(tensor))
            if is_distributed(tensor):
                return reading._replace(placements=_read_placements(tensor))
            return reading
    except Exception as error:  # a tensor class writes its own parts down, and may raise anything
        return OddTensorReading(
            _read_shape(tensor), 0, 0, Message("size not readable ({error})", error=class_name(type(error)))
        )


def _is_fake(tensor: torch.Tensor) -> bool:
    module = sys.modules.get(torch_internals.FAKE_TENSORS)
    return module is not None and is_a(tensor, module.FakeTensor)


def _dense_parts(tensor: Any) -> tuple[list[torch.Tensor], str]:
    """Return the dense tensors inside, and the name of the whole."""
    if is_distributed(tensor):
        return [tensor._local_tensor], shard_note(tensor)
    if _can_flatten(tensor):
        names, _ = tensor.__tensor_flatten__()
        return [getattr(tensor, name) for name in names], Message("packed by {class_name}", class_name=class_name(type(tensor)))
    if tensor.is_nested:
        return [tensor.values()], Message("nested")
    parts = list(sparse_parts(tensor))
    if parts:
        return parts, _describe_layout(tensor)
    return [], Message("mkldnn layout") if tensor.is_mkldnn else Message("no storage")


def _describe_layout(tensor: torch.Tensor) -> str:
    if tensor.layout == torch.sparse_coo:
        return Message("sparse, {count} values", count=tensor._nnz())
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return Message("sparse rows")
    return Message("sparse columns")


def _of_parts(tensor: torch.Tensor, parts: list[torch.Tensor], note: str) -> OddTensorReading:
    if not parts:
        size = tensor.numel() * tensor.element_size()
        return OddTensorReading(_read_shape(tensor), size, size, note)
    total = stored = 0
    key: int | None = None
    for part in parts:
        if is_odd(part):
            reading = read_odd(part)
            total, stored, key = total + reading.bytes, stored + reading.storage_bytes, reading.storage_key
        else:
            storage = part.untyped_storage()
            total, stored, key = total + part.nbytes, stored + storage.nbytes(), storage._cdata
    if len(parts) > 1:
        key = None
    return OddTensorReading(_read_shape(tensor), total, stored, note, key)


def _read_shape(tensor: torch.Tensor) -> tuple[int, ...] | None:
    try:
        return tuple(size if type(size) is int else -1 for size in tensor.shape)
    except RuntimeError:  # the strided nested tensor has no shape
        return (tensor.size(0), *[-1] * (tensor.dim() - 1))


def shard_note(tensor: Any) -> str:
    """Return which part of a DTensor this rank holds, such as `shard 0 of 4 along dim 0, here (2, 8)`. No communication."""
    here = str(tuple(tensor._local_tensor.shape))
    return Message("{placements}, here {shape}", placements=_read_placements(tensor), shape=here)


def _read_placements(tensor: Any) -> str:
    mesh = tensor.device_mesh
    coordinate = mesh.get_coordinate() or [None] * mesh.ndim
    words = []
    for axis, placement in enumerate(tensor.placements):
        ranks, rank = mesh.size(axis), coordinate[axis]
        if placement.is_replicate():
            words.append(Message("replicated on {ranks}", ranks=ranks))
        elif placement.is_shard():
            words.append(Message("shard {rank} of {ranks} along dim {dim}", rank=rank, ranks=ranks, dim=placement.dim))
        else:
            words.append(Message("partial sum over {ranks}", ranks=ranks))
    return in_row(words)
