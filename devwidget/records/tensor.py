"""TensorFacts: what is known of one tensor that a module or an optimizer holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from devwidget.records.device import DeviceId
from devwidget.records.schema.bounds import Length, Size

Role = Literal["parameter", "buffer", "attribute", "optimizer"]


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """One tensor, as it was when it was read.

    Attributes:
        name: the name in its owner; for containers the path inside (`anchors[0]`, `cache['key']`).
        role: `attribute` is a tensor that `Module.to` does not reach.
        shape: sizes; None while the tensor is uninitialised (lazy).
        dtype: torch's word without the prefix, such as `float32`.
        device: where it lives; for offloaded weights, where the loader keeps them.
        bytes: bytes of its elements on this process' device; 0 on meta and while lazy.
        storage: an id shared by all tensors of one storage within one snapshot, so that bytes are counted once.
        storage_bytes: bytes of that whole storage.
        requires_grad: whether autograd collects a gradient for it.
        grad_bytes: bytes of its `.grad`, 0 without one.
        grad_device: where its `.grad` lives.
        tied_to: full path of the tensor that was met first with the same storage and the same shape; "" if none.
        note: what a reader should know: `lazy`, `offloaded to disk`, `shard 0 of 4`, `packed`, ...
        placements: how a DTensor lies over its mesh, such as `shard 0 of 4 along dim 0`; "" for all others.
        kept: where a weight that is away between calls is kept, such as `offloaded to cpu`; "" for all others.
    """

    name: str
    role: Role
    shape: tuple[Length, ...] | None
    dtype: str
    device: DeviceId
    bytes: Size
    storage: int
    storage_bytes: Size
    requires_grad: bool = False
    grad_bytes: Size = 0
    grad_device: DeviceId | None = None
    tied_to: str = ""
    note: str = ""
    placements: str = ""
    kept: str = ""
