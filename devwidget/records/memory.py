"""Bytes of one device: their use at one moment, and how allocations change over a recording."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from devwidget.records.device import KINDS, DeviceId
from devwidget.records.schema.fields import Size
from devwidget.records.site import Phase, Site

CATEGORIES = ("parameters", "buffers", "attributes", "gradients", "optimizer", "activations", "cache", "others", "free")
"""The parts of a memory bar, in drawing order; they add up to the device's total."""


def in_blocks(requested_bytes: int, block_bytes: int) -> int:
    """Return the bytes of one allocation, rounded up to a multiple of `block_bytes`."""
    return -(-requested_bytes // block_bytes) * block_bytes


def allocated_bytes(requested_bytes: int, device_type: str) -> int:
    """Return the bytes of one allocation on a type of device."""
    kind = KINDS.get(device_type)
    if kind is None:
        return requested_bytes
    return in_blocks(requested_bytes, kind.block_bytes)


_UNITS = ("bytes", "KiB", "MiB", "GiB")
_SIZE = rf"([\d.]+) ({'|'.join(_UNITS)})"
_REFUSED = re.compile(rf"Tried to allocate {_SIZE}\. GPU (\d+)(?:.*?{_SIZE} is allocated by PyTorch)?", re.DOTALL)


class RefusedBytes(NamedTuple):
    """What the text of an out-of-memory error says: the GPU, the requested bytes, and the bytes in use or 0."""

    gpu: int
    requested: int
    allocated: int


def read_refused_bytes(text: str) -> RefusedBytes | None:
    """Return the figures of an out-of-memory error, which has them only in its text."""
    found = _REFUSED.search(text)
    if found is None:
        return None
    requested, unit, index, allocated, other_unit = found.groups(default="0")
    units = {"0": 0} | {name: 1024**power for power, name in enumerate(_UNITS)}
    return RefusedBytes(int(index), round(float(requested) * units[unit]), round(float(allocated) * units[other_unit]))


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """One device's memory, in bytes.

    Attributes:
        device: which device.
        name: the card's name, such as `NVIDIA H100` or `virtual GPU`.
        virtual: True if the numbers come from virtual GPUs.
        total: bytes of the device; 0 when unknown.
        parameters: bytes of the model's parameters.
        buffers: bytes of its buffers.
        attributes: bytes of tensors that modules keep without registering them.
        gradients: bytes of gradients.
        optimizer: bytes of the optimizer's state.
        activations: other live tensors of this process.
        cache: reserved by the allocator and unused.
        others: other processes, driver and context.
        free: what is left.
        peak: the highest `allocated` so far (since reset), 0 when unknown.
        card: number of the card in the machine as in `nvidia-smi`, while torch counts visible ones. None when unknown.
        uuid: identifies the card across processes and restarts; "" when unknown.
    """

    device: DeviceId
    name: str
    virtual: bool
    total: Size
    parameters: Size = 0
    buffers: Size = 0
    attributes: Size = 0
    gradients: Size = 0
    optimizer: Size = 0
    activations: Size = 0
    cache: Size = 0
    others: Size = 0
    free: Size = 0
    peak: Size = 0
    card: int | None = None
    uuid: str = ""


ROLES = (
    "parameters", "buffers", "attributes", "gradients", "optimizer", "activations", "outputs", "gathered", "inputs", "other",
    "foreign",
)  # fmt: skip
"""The parts of a point, in drawing order; they add up to what is allocated."""
HELD = ROLES[:5]
"""Roles that a model and its optimizer hold."""
MOST_HOLDINGS = 8
UNKNOWN = "unknown"
"""Bytes that the allocator counts and no tensor explains; see `PeakShare`."""


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """The live tensors of one device at one moment, in bytes; every storage counts once.

    Attributes:
        number: place in the trace.
        phase: part of the step.
        module: path of the module that ran, or, in backward, whose gradients were computed; "" for the root; None outside.
        site: the user's line.
        allocated: the allocator's figure; the sum of the parts.
        parameters: of the model, replicas included.
        buffers: of the model, replicas included.
        attributes: tensors that modules keep without registering them.
        gradients: `.grad` of parameters, from their allocation.
        optimizer: state of optimizers.
        activations: tensors that autograd keeps for backward.
        inputs: inputs of the model and the loss.
        other: temporaries, and all else.
        outputs: outputs of a model or a replica that backward does not need.
        gathered: outputs of replicas, gathered on one device.
        foreign: other models and tensors from before the recording.
    """

    number: int
    phase: Phase
    module: str | None
    site: Site | None
    allocated: Size
    parameters: Size = 0
    buffers: Size = 0
    attributes: Size = 0
    gradients: Size = 0
    optimizer: Size = 0
    activations: Size = 0
    inputs: Size = 0
    other: Size = 0
    outputs: Size = 0
    gathered: Size = 0
    foreign: Size = 0


@dataclass(frozen=True, slots=True)
class Holding:
    """Bytes at the peak that one line in one module allocated.

    Attributes:
        role: role of the bytes.
        bytes: bytes in use at the peak.
        phase: part of the step in which they were allocated.
        module: module path, as for a point.
        site: the line, as for a point.
        name: what the program called it by `torch.cuda.memory._set_memory_metadata`; "" for nothing.
    """

    role: str
    bytes: Size
    phase: Phase
    module: str | None
    site: Site | None
    name: str = ""


@dataclass(frozen=True, slots=True)
class PeakShare:
    """A part of the bytes in use at the peak of a device. All shares add up to the allocator's figure.

    Attributes:
        role: one of `ROLES`; `UNKNOWN` for bytes that belong to no recorded tensor.
        bytes: bytes in use at the peak.
        module: path of the module that owns them, or whose gradients or optimizer state they are; else of the module that ran
            when they were allocated, or whose gradients were computed. None outside.
        site: the line that allocated them; None for bytes from before the recording.
    """

    role: str
    bytes: Size
    module: str | None
    site: Site | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An allocation that did not fit.

    Attributes:
        number: place in the trace.
        bytes: requested bytes.
        allocated: bytes in use then.
        phase: part of the step.
        module: module path, as for a point.
        site: the line, as for a point.
        live: use of the memory then; None in memory snapshots of torch.
        holdings: allocations of the recording in use then, largest first; at most `MOST_HOLDINGS`.
    """

    number: int
    bytes: Size
    allocated: Size
    phase: Phase
    module: str | None
    site: Site | None
    live: MemoryPoint | None = None
    holdings: tuple[Holding, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """One device through a recording.

    Attributes:
        end: state of the device at the end, including its name and size.
        source: `allocator` if each point is the allocator's figure; `model` if only tensors of the model and its optimizer were
            counted, at the end of each phase, because the device has no allocator to query.
        points: in order. A long recording keeps highs and lows, and always the peak.
        refused: allocations that did not fit.
        holdings: allocations of the recording in use at the peak, largest first; at most `MOST_HOLDINGS`.
        shares: all bytes in use at the peak, largest first; () without an allocator.
        kept: the activations at their own peak, largest first, as `shares`.
    """

    end: DeviceMemory
    source: Literal["allocator", "model"]
    points: tuple[MemoryPoint, ...]
    refused: tuple[Refusal, ...] = ()
    holdings: tuple[Holding, ...] = ()
    shares: tuple[PeakShare, ...] = ()
    kept: tuple[PeakShare, ...] = ()

    @property
    def device(self) -> DeviceId:
        """Return the device."""
        return self.end.device

    @property
    def total(self) -> int:
        """Return its total bytes; 0 when unknown."""
        return self.end.total

    @property
    def peak(self) -> MemoryPoint | None:
        """Return the first of the highest points; None without points."""
        return max(self.points, key=lambda point: point.allocated, default=None)
