"""List devices and their memory without creating a context, allocating or syncing; cheap enough to poll."""

from __future__ import annotations

import contextlib
import functools
import os
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import torch

from devwidget.capture import torch_internals
from devwidget.records.device import CPU, CUDA, KINDS, DeviceId
from devwidget.records.memory import DeviceMemory
from devwidget.records.schema.message import Message


def accelerator_here() -> torch.device | None:
    """Return the accelerator type of this torch, without an index."""
    return torch.accelerator.current_accelerator()


def kind_here() -> str:
    """Return the device type that a bare number refers to; CUDA without an accelerator, as in torch's documentation."""
    found = accelerator_here()
    if found is None:
        return CUDA.type
    return found.type


def count_of(kind: str) -> int:
    """Return how many devices of a kind are visible."""
    module = getattr(torch, kind, None)
    return module.device_count() if isinstance(module, ModuleType) else 0


def is_built_for(kind: str) -> bool:
    """Return whether this build of torch supports devices of a kind."""
    if kind in ("cuda", "mps"):
        return bool(getattr(torch.backends, kind).is_built())
    module = getattr(torch, kind, None)
    return bool(getattr(module, "_is_compiled", lambda: module is not None)())


def list_devices() -> tuple[str, ...]:
    """Return every device of this machine, `cpu` last."""
    return (*(f"{kind}:{index}" for kind in KINDS for index in range(count_of(kind))), "cpu")


def default_device() -> torch.device:
    """Return the device of factory functions. Before torch 2.9 it is unknown after a default was reset with None."""
    try:
        return torch.get_default_device()
    except AttributeError:
        return torch.device("cpu")


def set_default_device(device: torch.device | str | None) -> None:
    """Set the default device. None resets it without a trace, for the same reason."""
    torch.set_default_device(device)
    if device is None:
        vars(torch_internals.default_device).pop("device_context", None)


def awake_module() -> Any:
    """Return the accelerator's module, such as `torch.cuda`, once it was used; None before, or if it is unknown."""
    module = torch.get_device_module(kind_here())
    if getattr(module, "is_initialized", bool)():
        return module
    return None


class Card(NamedTuple):
    """A GPU: its name, its memory in bytes over all processes, and its number in the machine."""

    name: str
    total: int
    used: int
    number: int | None = None


def card_by_uuid(uuid: str) -> Card | None:
    """Return the card with this `torch.cuda.get_device_properties(i).uuid`. Ordinals of CUDA and NVML differ, UUIDs do not."""
    library = _load_library()
    if library is None or not uuid:
        return None
    for prefix in ("GPU-", "MIG-"):
        with contextlib.suppress(library.NVMLError):
            return _read_card(library, library.nvmlDeviceGetHandleByUUID(f"{prefix}{uuid}"))
    return None


def cards_in_cuda_order(count: int) -> list[Card]:
    """Return all cards if `cuda:i` is certainly the i-th one; [] otherwise.

    CUDA numbers the fastest card first, NVML by PCI bus. They agree if CUDA is set to PCI order or if all cards are equal.
    """
    library = _load_library()
    if library is None or "CUDA_VISIBLE_DEVICES" in os.environ:
        return []
    cards = []
    with contextlib.suppress(library.NVMLError):
        for index in range(library.nvmlDeviceGetCount()):
            cards.append(_read_card(library, library.nvmlDeviceGetHandleByIndex(index)))
    alike = len({card.name for card in cards}) == 1 or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if alike and len(cards) == count:
        return cards
    return []


def _read_card(library: ModuleType, handle: Any) -> Card:
    memory, name = library.nvmlDeviceGetMemoryInfo(handle), library.nvmlDeviceGetName(handle)
    number = None
    with contextlib.suppress(library.NVMLError):  # a MIG part has none
        number = int(library.nvmlDeviceGetIndex(handle))
    return Card(name.decode() if isinstance(name, bytes) else str(name), int(memory.total), int(memory.used), number)


@functools.cache
def _load_library() -> ModuleType | None:
    """Return the initialised library; None without the package or a driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml  # type: ignore[no-any-return]


def read_memory(virtual_gpus: int = 0) -> tuple[DeviceMemory, ...]:
    """Return the memory of each visible accelerator, then of `cpu`.

    All live tensors of this process are one figure, `activations`; `memory.accounting` separates the model's tensors. The
    total of `cpu` is 0, because host memory is not part of a card.

    Args:
        virtual_gpus: number of active virtual GPUs; `torch.cuda`, or the module of the simulated type, reports their memory.
    """
    played = accelerator_here() if virtual_gpus else None
    if played is not None:
        visible = torch.get_device_module(played.type).device_count()  # fewer, if an environment variable hides some
        devices = [_used_bytes(played.type, index, virtual=True) for index in range(visible)]
    else:
        devices = [*_cuda_devices(), *_other_accelerator()]
    return (*devices, DeviceMemory(CPU, "CPU", virtual=False, total=0))


def compose_memory(
    device: DeviceId, name: str, total: int, *, allocated: int, reserved: int, used: int, peak: int = 0, virtual: bool = False
) -> DeviceMemory:
    """Return the parts of a memory bar, in bytes; they add up to `total`.

    Args:
        allocated: bytes of live tensors of this process.
        reserved: bytes that its allocator holds, `allocated` included.
        used: bytes used by all processes, if known.
    """
    allocated = min(allocated, total)
    cache = min(max(0, reserved - allocated), total - allocated)
    others = min(max(0, used - reserved), total - allocated - cache)
    free = total - allocated - cache - others
    return DeviceMemory(
        device, name, virtual, total, activations=allocated, cache=cache, others=others, free=free, peak=peak
    )  # fmt: skip


def _cuda_devices() -> list[DeviceMemory]:
    """Return CUDA devices. Before CUDA is initialised only NVML is asked: a query would create a context of hundreds of MB."""
    count = torch.cuda.device_count()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return [_used_bytes("cuda", index, virtual=False) for index in range(count)]
    devices = [DeviceId("cuda", index) for index in range(count)]
    cards = cards_in_cuda_order(count)
    if not cards:
        return [DeviceMemory(device, Message("GPU, not used yet"), virtual=False, total=0) for device in devices]
    return [
        compose_memory(device, card.name, card.total, allocated=0, reserved=0, used=card.used)
        for device, card in zip(devices, cards, strict=True)
    ]


def _used_bytes(kind: str, index: int, *, virtual: bool) -> DeviceMemory:
    module = torch.get_device_module(kind)
    properties = module.get_device_properties(index)
    reserved = module.memory_reserved(index)
    total, used, uuid = properties.total_memory, reserved, str(getattr(properties, "uuid", ""))
    if virtual:
        free, total = _free_and_total(module, index) or (total - reserved, total)
        used = total - free
        card = getattr(properties, "pci_bus_id", None)  # the slot of a virtual GPU is its number in the machine
    else:
        total, used, card = _whole_card(index, properties, uuid, reserved)
    memory = compose_memory(
        DeviceId(kind, index),
        "virtual GPU" if virtual else properties.name,
        total,
        allocated=module.memory_allocated(index),
        reserved=reserved,
        used=used,
        peak=module.max_memory_allocated(index),
        virtual=virtual,
    )
    return replace(memory, card=card, uuid=uuid)


def _whole_card(index: int, properties: Any, uuid: str, reserved: int) -> tuple[int, int, int | None]:
    """Return total and used bytes of a card over all processes, and its number. CUDA is asked only if a context exists."""
    card = card_by_uuid(uuid)
    if card is not None:
        return card.total, card.used, card.number
    if _has_context(index) and (asked := _free_and_total(torch.cuda, index)) is not None:
        free, total = asked
        return total, total - free, None
    return properties.total_memory, reserved, None


def _has_context(index: int) -> bool:
    """Return whether CUDA already runs on a card. For an unknown number torch 2.8 raises instead of returning False."""
    try:
        return torch_internals.cuda_has_context is not None and bool(torch_internals.cuda_has_context(index))
    except RuntimeError:
        return False


def _free_and_total(module: Any, index: int) -> tuple[int, int] | None:
    """Return free and total bytes of a card; None after a device-side assert has destroyed the context."""
    try:
        return module.mem_get_info(index)  # type: ignore[no-any-return]
    except RuntimeError:
        return None


def _other_accelerator() -> list[DeviceMemory]:
    """Return Apple's memory. Memory of Intel and other devices is not read."""
    accelerator = accelerator_here()
    if accelerator is None or accelerator.type == "cuda":
        return []
    devices = [DeviceId(accelerator.type, index) for index in range(count_of(accelerator.type))]
    if accelerator.type != "mps":
        return [DeviceMemory(device, device.kind, virtual=False, total=0) for device in devices]
    allocated, reserved = torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory()
    total = torch.mps.recommended_max_memory()
    return [compose_memory(DeviceId("mps", 0), "Apple GPU", total, allocated=allocated, reserved=reserved, used=reserved)]
