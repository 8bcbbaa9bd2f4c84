"""DeviceMemory: how the bytes of one device are used at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.records.device import KINDS, DeviceId
from devwidget.records.schema.bounds import Size

CATEGORIES = ("parameters", "buffers", "attributes", "gradients", "optimizer", "activations", "cache", "others", "free")
"""The parts of a memory bar, in drawing order; they add up to the device's total."""


def in_blocks(requested_bytes: int, block_bytes: int) -> int:
    """Bytes that one allocation takes where each is a multiple of `block_bytes`."""
    return -(-requested_bytes // block_bytes) * block_bytes


def allocated_bytes(requested_bytes: int, device_type: str) -> int:
    """Bytes that one allocation takes on a type of device."""
    kind = KINDS.get(device_type)
    return requested_bytes if kind is None else in_blocks(requested_bytes, kind.block_bytes)


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
