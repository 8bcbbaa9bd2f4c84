"""Snapshot: the module tree and every tensor in it, at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.records.memory import DeviceMemory
from devwidget.records.schema.bounds import Size
from devwidget.records.schema.record import Record
from devwidget.records.site import Site
from devwidget.records.tensor import TensorFacts


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """One module.

    Attributes:
        path: dotted path; "" for the root. A module that is registered in two places is listed at its first path.
        class_name: name of its class, without the package.
        parent: index of its parent in `Snapshot.modules`, -1 for the root.
        depth: 0 for the root.
        tensors: what the module itself holds, not its children.
        defined: where its class is written, None for library classes and where the source is not at hand.
        training: its training flag.
        wrapper: "" or what wraps it: `DataParallel`, `DistributedDataParallel`, `compiled`, `accelerate`, ...
        note: what a reader should know, such as `also at decoder.embed` or `cuda:0, offloads to cpu`.
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
    """Where everything is.

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
