"""ACCOUNTING: live tensors of a device by category, every storage counted once."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from devwidget.records.device import DeviceId
from devwidget.records.memory import DeviceMemory, allocated_bytes
from devwidget.records.snapshot import ModuleFacts, Snapshot, TensorFacts

Held = Mapping[DeviceId, Mapping[str, int]]
"""Bytes that a model and its optimizer hold, by device and category."""

_CATEGORY = {"parameter": "parameters", "buffer": "buffers", "attribute": "attributes", "optimizer": "optimizer"}
_MODEL_KINDS = (*_CATEGORY.values(), "gradients")
# Where a model's bytes were counted before; only `activations`, unless they came past the allocator that was asked.
_SOURCES = ("activations", "others", "free", "cache")


def block_bytes(requested_bytes: int, device: DeviceId) -> int:
    """Return the bytes that one allocation takes on its device.

    Args:
        requested_bytes: Size in bytes, zero or more.
        device: Device of the storage.

    Returns:
        Bytes; on CUDA rounded up to a multiple of 512, elsewhere as in `records.device`.

    Raises:
        ValueError: If `requested_bytes` is negative.

    Source: `kMinBlockSize` in PyTorch's caching allocator.
    """
    if requested_bytes < 0:
        raise ValueError(f"{requested_bytes} bytes cannot be allocated")
    return allocated_bytes(requested_bytes, device.kind)


def account_memory(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the live bytes of each device by category: of the model, the optimizer, and others."""
    return replace(snapshot, memory=categorize_memory(snapshot.memory, held_by(snapshot)))


def held_by(snapshot: Snapshot) -> Held:
    """Return the bytes of the model and its optimizer by device. Walks all tensors, so a live view keeps the result."""
    return held_bytes(snapshot.modules, snapshot.optimizer)


def held_bytes(modules: Iterable[ModuleFacts], optimizer: Iterable[TensorFacts] = ()) -> Held:
    """Return the bytes of a model by device and category. Shared storage counts as parameter, then buffer, then attribute."""
    tensors: dict[str, list[TensorFacts]] = {role: [] for role in _CATEGORY}
    for module in modules:
        for tensor in module.tensors:
            tensors[tensor.role].append(tensor)
    grown = []
    for tensor in itertools.chain.from_iterable(tensors.values()):
        if tensor.grad_device is not None and not tensor.tied_to:
            grown.append((tensor.grad_device, tensor.grad_bytes))
    tensors["optimizer"] += optimizer
    found: dict[str, dict[DeviceId, int]] = {}
    seen: set[int] = set()
    for role, category in _CATEGORY.items():
        owned = []
        for tensor in tensors[role]:
            if tensor.storage not in seen:
                seen.add(tensor.storage)
                owned.append((tensor.device, tensor.storage_bytes))
        found[category] = _sum_by_device(owned)
    found["gradients"] = _sum_by_device(grown)
    held: defaultdict[DeviceId, dict[str, int]] = defaultdict(dict)
    for category, sums in found.items():
        for device, size in sums.items():
            held[device][category] = size
    return dict(held)


def _sum_by_device(allocations: Iterable[tuple[DeviceId, int]]) -> dict[DeviceId, int]:
    """Sum the bytes taken on each device."""
    sums: dict[DeviceId, int] = {}
    for (device, size), count in Counter(allocations).items():
        sums[device] = sums.get(device, 0) + count * block_bytes(size, device)
    return sums


def categorize_memory(memory: Iterable[DeviceMemory], held: Held) -> tuple[DeviceMemory, ...]:
    """Move the bytes in `held` from `activations` to their categories; the total is unchanged.

    Devices that already have categories are unchanged.
    """
    return tuple(_categorize_device(each, held.get(each.device, {})) for each in memory)


def _categorize_device(memory: DeviceMemory, held: Mapping[str, int]) -> DeviceMemory:
    if any(getattr(memory, kind) for kind in _MODEL_KINDS):
        return memory
    parts: dict[str, Any] = dict(held)
    if not memory.total:
        return replace(memory, **parts)
    missing = sum(held.values())
    for source in _SOURCES:
        taken = min(missing, getattr(memory, source))
        parts[source] = getattr(memory, source) - taken
        missing -= taken
    return replace(memory, **parts)
