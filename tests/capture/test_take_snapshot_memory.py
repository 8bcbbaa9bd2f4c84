"""Device memory is read without a context, and its parts add up to the card."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from devwidget.capture import devices
from devwidget.capture.devices import Card, compose_memory, read_memory
from devwidget.records.device import CPU, DeviceId
from devwidget.records.memory import CATEGORIES, DeviceMemory

GPU = DeviceId("cuda", 0)


def pretend(monkeypatch: pytest.MonkeyPatch, *, initialised: bool, gpus: int = 1) -> None:
    """A CUDA whose process holds 300 bytes and reserves 400 of 1000."""
    properties = SimpleNamespace(name="NVIDIA H100", total_memory=1000, uuid="abc")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: initialised)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties if initialised else pytest.fail("asked"))
    for name, value in {"memory_allocated": 300, "memory_reserved": 400, "max_memory_allocated": 350}.items():
        monkeypatch.setattr(torch.cuda, name, lambda index, value=value: value)


def parts(memory: DeviceMemory) -> dict[str, int]:
    return {name: size for name in CATEGORIES if (size := getattr(memory, name))}


@settings(derandomize=True, deadline=None)
@given(*[st.integers(0, 2000)] * 4)
def test_the_parts_add_up_whatever_the_counters_say(total: int, allocated: int, reserved: int, used: int) -> None:
    memory = compose_memory(GPU, "card", total, allocated=allocated, reserved=reserved, used=used)
    assert sum(parts(memory).values()) == total
    assert min(getattr(memory, name) for name in CATEGORIES) >= 0


def test_without_accelerators_there_is_just_the_cpu() -> None:
    if devices.accelerator_here() is None:
        assert read_memory() == (DeviceMemory(CPU, "CPU", False, 0),)


def test_an_idle_cuda_is_asked_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, initialised=False)
    monkeypatch.setattr(devices, "cards_in_cuda_order", lambda count: [])
    assert read_memory()[0] == DeviceMemory(GPU, "GPU, not used yet", False, 0)


def test_an_idle_cuda_shows_what_the_driver_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, initialised=False)
    monkeypatch.setattr(devices, "cards_in_cuda_order", lambda count: [Card("NVIDIA H100", 1000, 150)])
    memory = read_memory()[0]
    assert (memory.name, parts(memory)) == ("NVIDIA H100", {"others": 150, "free": 850})


def test_a_cuda_in_use_splits_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, initialised=True)
    monkeypatch.setattr(devices, "card_by_uuid", lambda uuid: Card("", 1024, 600))
    memory = read_memory()[0]
    assert parts(memory) == {"activations": 300, "cache": 100, "others": 200, "free": 424}
    assert (memory.name, memory.total, memory.peak) == ("NVIDIA H100", 1024, 350)


def test_without_nvml_and_context_the_reserved_bytes_are_all_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, initialised=True)
    monkeypatch.setattr(devices, "card_by_uuid", lambda uuid: None)
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda index: False, raising=False)
    assert parts(read_memory()[0]) == {"activations": 300, "cache": 100, "free": 600}


def test_virtual_gpus_are_read_through_torch_cuda_and_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, initialised=True, gpus=2)
    monkeypatch.setattr(devices, "card_by_uuid", lambda uuid: pytest.fail("asked NVML"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (500, 1000))
    first, second, cpu = read_memory(virtual_gpus=2)
    assert (first.device, second.device, cpu.device) == (GPU, DeviceId("cuda", 1), CPU)
    assert (first.virtual, first.name, first.total) == (True, "virtual GPU", 1000)
    assert (first.others, first.free) == (100, 500), "a context is no tensor of anybody's"


class FakeNvml:
    """The part of `pynvml` that is used; two cards of 1000 bytes."""

    class NVMLError(Exception):
        """What it raises for unknown cards."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def nvmlDeviceGetCount(self) -> int:
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        if uuid != "MIG-abc":
            raise self.NVMLError(uuid)
        return 0

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return self.names[handle].encode()

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=1000, used=10 + handle)

    def nvmlDeviceGetIndex(self, handle: int) -> int:
        return handle + 2


def test_cards_are_found_by_uuid_also_on_mig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_load_library", lambda: FakeNvml("A100"))
    assert devices.card_by_uuid("abc") == Card("A100", 1000, 10, 2)
    assert devices.card_by_uuid("other") is None


def test_ordinals_are_claimed_only_when_they_are_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    monkeypatch.setattr(devices, "_load_library", lambda: FakeNvml("A100", "T4"))
    assert devices.cards_in_cuda_order(2) == []
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert [card.name for card in devices.cards_in_cuda_order(2)] == ["A100", "T4"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert devices.cards_in_cuda_order(2) == []
