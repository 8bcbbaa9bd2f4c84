"""Who keeps memory of a device in use, in the user's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from devwidget.records.device import DeviceId
from devwidget.records.schema.fields import Size
from devwidget.records.schema.record import Record
from devwidget.records.site import Site

HolderPlace = Literal["variable", "local", "output", "traceback", "elsewhere"]


@dataclass(frozen=True, slots=True)
class MemoryHolder:
    """What keeps memory in use. Each storage counts for one holder, the first in this order: models, optimizers, containers.

    Attributes:
        place: a variable at top level, one of a running call, a displayed result, one in the frames of the last error, or none
            that devwidget can reach.
        name: expression that reaches it, such as `self.history`; "" for none.
        function: function of the variable; "" at top level.
        kind: its class.
        items: number of items of a container, 0 for all else; elsewhere the number of objects that were searched, if not all.
        bytes: bytes that it keeps in use.
        parameters: part of them in parameters.
        gradients: part of them in `.grad`.
        optimizer: part of them in optimizer state.
        graph: part of them that autograd keeps for backward, behind tensors that require grad.
        frees: code that frees some; "" for none.
        freed: bytes that it frees.
        also: what else keeps some of the bytes.
        has_tensors: whether it is a tensor, or each of its items that has some of the bytes is one.
        site: the line that keeps it.
        most_items: maximum number of items of a `deque`; 0 if unbounded.
        has_graph: whether it, or an item of it, is a tensor that autograd computed.
    """

    place: HolderPlace
    name: str
    function: str
    kind: str
    items: Size
    bytes: Size
    parameters: Size = 0
    gradients: Size = 0
    optimizer: Size = 0
    graph: Size = 0
    frees: str = ""
    freed: Size = 0
    also: tuple[str, ...] = ()
    has_tensors: bool = False
    site: Site | None = None
    most_items: Size = 0
    has_graph: bool = False

    @property
    def is_graph(self) -> bool:
        """Return whether autograd keeps most of it for backward."""
        return self.graph > self.bytes // 2


@dataclass(frozen=True, slots=True)
class DeviceHolders:
    """The holders of one device's memory.

    Attributes:
        device: which device.
        total: bytes of the device.
        allocated: bytes of live tensors of this process.
        holders: most bytes first.
    """

    device: DeviceId
    total: Size
    allocated: Size
    holders: tuple[MemoryHolder, ...]


@dataclass(frozen=True, slots=True)
class HeldMemory(Record):
    """Who keeps memory in use, by device.

    Attributes:
        devices: devices with live tensors.
    """

    devices: tuple[DeviceHolders, ...]
