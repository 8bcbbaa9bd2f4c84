"""The bytes of one device: how they are used at one moment, and how what is allocated goes up and down over a recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from devwidget.records.device import KINDS, DeviceId
from devwidget.records.schema.fields import Size
from devwidget.records.site import Phase, Site

CATEGORIES = ("parameters", "buffers", "attributes", "gradients", "optimizer", "activations", "cache", "others", "free")
"""The parts of a memory bar, in drawing order; they add up to the device's total."""


def in_blocks(requested_bytes: int, block_bytes: int) -> int:
    """Bytes that one allocation takes where each is a multiple of `block_bytes`."""
    return -(-requested_bytes // block_bytes) * block_bytes


def allocated_bytes(requested_bytes: int, device_type: str) -> int:
    """Bytes that one allocation takes on a type of device."""
    kind = KINDS.get(device_type)
    if kind is None:
        return requested_bytes
    return in_blocks(requested_bytes, kind.block_bytes)


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
        cache: reserved by the allocator and not in use.
        others: other processes, driver and context.
        free: what is left.
        peak: the highest `allocated` so far (since reset), 0 when unknown.
        card: number of the card in the machine, as `nvidia-smi` counts; torch counts what is visible. None when unknown.
        uuid: what names the card in every process and at every start; "" when unknown.
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
"""Those that a model and its optimizer hold."""
MOST_HOLDINGS = 8
UNKNOWN = "unknown"
"""What the allocator counts and nobody has seen; see `PeakShare`."""


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """The live tensors of one device at one moment, in bytes; every storage counts once.

    Attributes:
        number: place in the trace.
        phase: part of the step.
        module: path of the module that ran, or, in backward, whose gradients were computed; "" the root; None outside.
        site: the user's line.
        allocated: what the allocator says; the sum of the parts.
        parameters: of the model, replicas included.
        buffers: of the model, replicas included.
        attributes: tensors that modules keep without registering them.
        gradients: in `.grad` of parameters, from the moment when they are allocated.
        optimizer: state of optimizers.
        activations: what autograd keeps for backward, as long as it lives.
        inputs: what the model and the loss were given.
        other: temporaries, and all else.
        outputs: what a model, or a replica of it, gave back, where backward does not need it.
        gathered: outputs of replicas, joined on one device.
        foreign: what was there before the recording and is no part of the model: other models and tensors.
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
    """What one line in one module had allocated of the bytes that made the peak.

    Attributes:
        role: what they were for.
        bytes: live at the peak.
        phase: part of the step in which they were allocated.
        module: where, as for a point.
        site: the line, as for a point.
    """

    role: str
    bytes: Size
    phase: Phase
    module: str | None
    site: Site | None


@dataclass(frozen=True, slots=True)
class PeakShare:
    """A part of the bytes that were in use at the peak of a device. All shares of it add up to what the allocator said.

    Attributes:
        role: what they were for, of `ROLES`; `UNKNOWN` for what no tensor that was seen lives in.
        bytes: live at the peak.
        module: path of the module that has them, or whose gradients or optimizer state they are; for all else, of the one that
            ran when they were allocated, or whose gradients were computed. None outside.
        site: the line that allocated them; None for what was there before the recording.
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
        bytes: what was asked for.
        allocated: what was in use then.
        phase: part of the step.
        module: where, as for a point.
        site: the line, as for a point.
        live: what was in use then; None in files of older versions.
        holdings: what was allocated during the recording and lived then, largest first; at most `MOST_HOLDINGS`.
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
        end: the device as it was at the end, its name and size among it.
        source: `allocator` if each point is what the allocator says; `model` if only the tensors of the model and its
            optimizer were counted, at the end of each phase, because the device has no allocator that can be asked.
        points: in order; a long recording keeps highs and lows, and always the peak.
        refused: allocations that did not fit.
        holdings: what was allocated during the recording and lived at the peak, largest first; at most `MOST_HOLDINGS`.
        shares: all that lived at the peak, largest first; () where no allocator was asked, or in files of older versions.
        kept: the activations at the moment when there were most of them, largest first, as `shares`.
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
        """Which device."""
        return self.end.device

    @property
    def total(self) -> int:
        """Bytes that it has; 0 when unknown."""
        return self.end.total

    @property
    def peak(self) -> MemoryPoint | None:
        """The first of the highest points; None without points."""
        return max(self.points, key=lambda point: point.allocated, default=None)
