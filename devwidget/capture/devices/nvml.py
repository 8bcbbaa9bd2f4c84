"""NVIDIA's own counters (NVML, the optional `pynvml`): memory of all processes, without a CUDA context."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple


class Card(NamedTuple):
    """One card: its name, its memory in bytes over all processes, and its number in the machine."""

    name: str
    total: int
    used: int
    number: int | None = None


def card_by_uuid(uuid: str) -> Card | None:
    """The card of `torch.cuda.get_device_properties(i).uuid`; the ordinals of CUDA and NVML differ, the UUID does not."""
    library = _load_library()
    if library is None or not uuid:
        return None
    for prefix in ("GPU-", "MIG-"):
        with contextlib.suppress(library.NVMLError):
            return _read_card(library, library.nvmlDeviceGetHandleByUUID(f"{prefix}{uuid}"))
    return None


def cards_in_cuda_order(count: int) -> list[Card]:
    """All cards, if `cuda:i` is surely the i-th of them; [] otherwise.

    CUDA numbers the fastest card first, NVML goes by the PCI bus: they agree if told so or if all cards are alike.
    """
    library = _load_library()
    if library is None or "CUDA_VISIBLE_DEVICES" in os.environ:
        return []
    with contextlib.suppress(library.NVMLError):
        cards = list(_read_all_cards(library))
        alike = len({card.name for card in cards}) == 1 or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        return cards if alike and len(cards) == count else []
    return []


def _read_all_cards(library: ModuleType) -> Iterator[Card]:
    for index in range(library.nvmlDeviceGetCount()):
        yield _read_card(library, library.nvmlDeviceGetHandleByIndex(index))


def _read_card(library: ModuleType, handle: Any) -> Card:
    memory, name = library.nvmlDeviceGetMemoryInfo(handle), library.nvmlDeviceGetName(handle)
    number = None
    with contextlib.suppress(library.NVMLError):  # a MIG part has none
        number = int(library.nvmlDeviceGetIndex(handle))
    return Card(name.decode() if isinstance(name, bytes) else str(name), int(memory.total), int(memory.used), number)


@functools.cache
def _load_library() -> ModuleType | None:
    """The initialised library; None without the package or without a driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml  # type: ignore[no-any-return]
