"""Snapshot: the module tree and the facts of every tensor in it, at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from devwidget.records.device import DeviceId
from devwidget.records.memory import DeviceMemory
from devwidget.records.schema.fields import Length, Size
from devwidget.records.schema.record import Record
from devwidget.records.site import Site

Role = Literal["parameter", "buffer", "attribute", "optimizer"]


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """Facts of one tensor at the time of the snapshot.

    Attributes:
        name: the name in its owner; for containers the path inside (`anchors[0]`, `cache['key']`).
        role: `attribute` is a tensor that `Module.to` does not move.
        shape: sizes; None while the tensor is uninitialised (lazy).
        dtype: torch's name without the prefix, such as `float32`.
        device: its device; for offloaded weights, where the loader keeps them.
        bytes: bytes of its elements on this process' device; 0 on meta and while lazy.
        storage: an id shared by all tensors of one storage within one snapshot, so that bytes are counted once.
        storage_bytes: bytes of that whole storage.
        requires_grad: whether autograd collects a gradient for it.
        grad_bytes: bytes of its `.grad`, 0 without one.
        grad_device: where its `.grad` lives.
        tied_to: full path of the first tensor with the same storage and shape; "" if none.
        note: a remark: `lazy`, `offloaded to disk`, `shard 0 of 4`, `packed`, ...
        placements: placements of a DTensor on its mesh, such as `shard 0 of 4 along dim 0`; "" for all others.
        kept: where a weight is kept between calls, such as `offloaded to cpu`; "" for all others.
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


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """One module.

    Attributes:
        path: dotted path; "" for the root. A module that is registered in two places is listed at its first path.
        class_name: name of its class, without the package.
        parent: index of its parent in `Snapshot.modules`, -1 for the root.
        depth: 0 for the root.
        tensors: tensors of the module itself, without its children.
        defined: where its class is defined, None for library classes and without source.
        training: its training flag.
        wrapper: its wrapper: `DataParallel`, `DistributedDataParallel`, `compiled`, `accelerate`, ...; "" if none.
        note: a remark, such as `also at decoder.embed` or `cuda:0, offloads to cpu`.
        runs: where a hook of accelerate runs it, such as `runs on cuda:0`; "" without one.
        device_map: devices of its `hf_device_map` with the number of modules on each; "" without one.
    """

    path: str
    class_name: str
    parent: int
    depth: int
    tensors: tuple[TensorFacts, ...] = ()
    defined: Site | None = None
    training: bool = True
    wrapper: str = ""
    note: str = ""
    runs: str = ""
    device_map: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot(Record):
    """The devices of a model, its optimizer and the machine's memory at one moment.

    Attributes:
        modules: in pre-order, the root first.
        optimizer: the optimizer's state tensors, named `<parameter path>.<state>`; () without an optimizer.
        memory: one entry for each visible device of the machine, and `cpu` with what the model holds there.
        virtual_gpus: how many virtual GPUs were active, 0 for none.
    """

    modules: tuple[ModuleFacts, ...]
    optimizer: tuple[TensorFacts, ...] = ()
    memory: tuple[DeviceMemory, ...] = ()
    virtual_gpus: Size = 0
