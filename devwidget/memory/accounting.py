"""Whose bytes they are: a device's live tensors by category, every storage counted once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from devwidget.records.device import CPU, DeviceId
from devwidget.records.memory import DeviceMemory, allocated_bytes
from devwidget.records.snapshot import ModuleFacts, Snapshot
from devwidget.records.tensor import TensorFacts

Held = Mapping[DeviceId, Mapping[str, int]]
"""Bytes that a model and its optimizer hold, by device and category."""

_CATEGORY = {"parameter": "parameters", "buffer": "buffers", "attribute": "attributes", "optimizer": "optimizer"}
_MODEL_KINDS = (*_CATEGORY.values(), "gradients")
_SOURCES = ("activations", "others", "free", "cache")
"""Where a model's bytes were counted before; only `activations`, unless they came past the allocator that was asked."""


def block_bytes(requested_bytes: int, device: DeviceId) -> int:
    """Bytes that one allocation really takes on its device.

    Args:
        requested_bytes: size asked for, in bytes, zero or more.
        device: where the storage lives.

    Returns:
        Bytes; on CUDA rounded up to a multiple of 512, elsewhere as `records.device` knows it.

    Raises:
        ValueError: if `requested_bytes` is negative.

    Source: `kMinBlockSize` in PyTorch's caching allocator.
    """
    if requested_bytes < 0:
        raise ValueError(f"{requested_bytes} bytes cannot be allocated")
    return allocated_bytes(requested_bytes, device.kind)


def account(snapshot: Snapshot) -> Snapshot:
    """The same snapshot with the live bytes of each device by category: the model's, the optimizer's, and the others."""
    return replace(snapshot, memory=categorized(snapshot.memory, held_by(snapshot)))


def held_by(snapshot: Snapshot) -> Held:
    """Bytes that the model and its optimizer hold: a walk over all tensors, so a live screen keeps the answer."""
    return held_bytes(snapshot.modules, snapshot.optimizer)


def held_bytes(modules: Iterable[ModuleFacts], optimizer: Iterable[TensorFacts] = ()) -> Held:
    """Bytes of a model by device and category; parameters win a storage over buffers, buffers over attributes."""
    tensors = [tensor for module in modules for tensor in module.tensors]
    seen: set[int] = set()
    sums = _Sums()
    for role, category in _CATEGORY.items():
        for tensor in tensors if role != "optimizer" else optimizer:
            if tensor.role == role and tensor.storage not in seen:
                seen.add(tensor.storage)
                sums.add(category, tensor.device, tensor.storage_bytes)
    for tensor in tensors:
        if tensor.grad_device is not None and not tensor.tied_to:
            sums.add("gradients", tensor.grad_device, tensor.grad_bytes)
    return sums.by_device()


class _Sums:
    """Bytes by category and device. Neighbours are mostly on one device, so that it is looked up once for all of them."""

    def __init__(self) -> None:
        self._sums: defaultdict[tuple[str, DeviceId], int] = defaultdict(int)
        self._last: tuple[str, DeviceId] = ("", CPU)
        self._running = 0

    def add(self, category: str, device: DeviceId, size: int) -> None:
        """Count one allocation."""
        if self._last[1] is not device or self._last[0] is not category:
            self._close()
            self._last = (category, device)
        self._running += block_bytes(size, device)

    def _close(self) -> None:
        if self._last[0]:
            self._sums[self._last] += self._running
        self._running = 0

    def by_device(self) -> Held:
        """The sums so far."""
        self._close()
        held: defaultdict[DeviceId, dict[str, int]] = defaultdict(dict)
        for (category, device), size in self._sums.items():
            held[device][category] = size
        return dict(held)


def categorized(memory: Iterable[DeviceMemory], held: Held) -> tuple[DeviceMemory, ...]:
    """Take the held bytes out of `activations`, into their categories; the parts still add up to the total.

    Devices that have been categorized before stay as they are.
    """
    return tuple(each if _is_categorized(each) else _categorized(each, held.get(each.device, {})) for each in memory)


def _is_categorized(memory: DeviceMemory) -> bool:
    return any(getattr(memory, kind) for kind in _MODEL_KINDS)


def _categorized(memory: DeviceMemory, held: Mapping[str, int]) -> DeviceMemory:
    parts: dict[str, Any] = dict(held)
    missing = sum(held.values())
    for source in _SOURCES if memory.total else ():
        taken = min(missing, getattr(memory, source))
        parts[source] = getattr(memory, source) - taken
        missing -= taken
    return replace(memory, **parts)
