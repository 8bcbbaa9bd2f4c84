"""How full each device is now, asked for without creating a context, allocating or waiting; cheap enough to poll."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.devices import nvml
from devwidget.records.device import CPU, DeviceId
from devwidget.records.memory import DeviceMemory
from devwidget.records.schema.message import Message


def read_memory(virtual_gpus: int = 0) -> tuple[DeviceMemory, ...]:
    """One entry for each visible accelerator, then `cpu`.

    All live tensors of this process are one figure, `activations`; `memory.accounting` tells the model's from the others.
    The total of `cpu` is 0: what a model holds there is no part of a card.

    Args:
        virtual_gpus: how many virtual GPUs are active; `torch.cuda`, or the module of what they play, answers for them.
    """
    played = torch.accelerator.current_accelerator() if virtual_gpus else None
    if played is not None:
        visible = torch.get_device_module(played.type).device_count()  # fewer, if an environment variable hides some
        devices = [_used_bytes(played.type, index, virtual=True) for index in range(visible)]
    else:
        devices = [*_cuda_devices(), *_other_accelerator()]
    return (*devices, DeviceMemory(CPU, "CPU", virtual=False, total=0))


def compose_memory(
    device: DeviceId, name: str, total: int, *, allocated: int, reserved: int, used: int, peak: int = 0, virtual: bool = False
) -> DeviceMemory:
    """The parts of a bar, in bytes; they add up to `total`.

    Args:
        allocated: live tensors of this process.
        reserved: what its allocator holds, `allocated` included.
        used: what is taken by all processes, as far as known.
    """
    allocated = min(allocated, total)
    cache = min(max(0, reserved - allocated), total - allocated)
    others = min(max(0, used - reserved), total - allocated - cache)
    free = total - allocated - cache - others
    return DeviceMemory(
        device, name, virtual, total, activations=allocated, cache=cache, others=others, free=free, peak=peak
    )  # fmt: skip


def _cuda_devices() -> list[DeviceMemory]:
    """Before CUDA is initialised nothing but NVML is asked: a query would create a context and take hundreds of MB."""
    count = torch.cuda.device_count()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return [_used_bytes("cuda", index, virtual=False) for index in range(count)]
    cards = nvml.cards_in_cuda_order(count)
    return [_idle_cuda(index, cards[index] if cards else None) for index in range(count)]


def _idle_cuda(index: int, card: nvml.Card | None) -> DeviceMemory:
    device = DeviceId("cuda", index)
    if card is None:
        return DeviceMemory(device, Message("GPU, not used yet"), virtual=False, total=0)
    return compose_memory(device, card.name, card.total, allocated=0, reserved=0, used=card.used)


def _used_bytes(kind: str, index: int, *, virtual: bool) -> DeviceMemory:
    module = torch.get_device_module(kind)
    properties = module.get_device_properties(index)
    reserved = module.memory_reserved(index)
    total, used, uuid = properties.total_memory, reserved, str(getattr(properties, "uuid", ""))
    if virtual:
        free, total = module.mem_get_info(index)
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
    """Total and used bytes of a card over all processes, and its number; from CUDA only where a context exists already."""
    card = nvml.card_by_uuid(uuid)
    if card is not None:
        return card.total, card.used, card.number
    has_context = torch_internals.cuda_has_context
    if has_context is not None and has_context(index):
        free, total = torch.cuda.mem_get_info(index)
        return total, total - free, None
    return properties.total_memory, reserved, None


def _other_accelerator() -> list[DeviceMemory]:
    """Apple's, Intel's and other devices, through torch's general interface; it raises where there is none."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type == "cuda":
        return []
    if accelerator.type == "mps":
        return [_read_mps()]
    devices = [DeviceId(accelerator.type, index) for index in range(torch.accelerator.device_count())]
    module = torch.get_device_module(accelerator)
    if not getattr(module, "is_initialized", lambda: True)():
        return [DeviceMemory(device, Message("not used yet"), virtual=False, total=0) for device in devices]
    return [_read_general(device) for device in devices]


def _read_mps() -> DeviceMemory:
    allocated, reserved = torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory()
    total = torch.mps.recommended_max_memory()
    return compose_memory(DeviceId("mps", 0), "Apple GPU", total, allocated=allocated, reserved=reserved, used=reserved)


def _read_general(device: DeviceId) -> DeviceMemory:
    free, total = torch.accelerator.get_memory_info(device.index)
    return compose_memory(
        device,
        device.kind,
        total,
        allocated=torch.accelerator.memory_allocated(device.index),
        reserved=torch.accelerator.memory_reserved(device.index),
        used=total - free,
        peak=torch.accelerator.max_memory_allocated(device.index),
    )
