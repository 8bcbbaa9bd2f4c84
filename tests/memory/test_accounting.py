"""Bytes by category: every storage once, rounded as the device rounds, and never more than the device has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from devwidget.memory import account_memory, block_bytes, categorize_memory, held_by, held_bytes
from devwidget.records.device import CPU, DeviceId
from devwidget.records.memory import CATEGORIES, DeviceMemory
from devwidget.records.snapshot import ModuleFacts, Role, Snapshot, TensorFacts
from tests.views.builders import MIB, split_model

GPU = DeviceId("cuda", 0)


def tensor(
    storage: int, size: int, *, role: Role = "parameter", device: DeviceId = GPU, grad: int = 0, tied: str = ""
) -> TensorFacts:
    return TensorFacts(
        "t",
        role,
        (size,),
        "uint8",
        device,
        size,
        storage,
        size,
        grad_bytes=grad,
        grad_device=device if grad else None,
        tied_to=tied,
    )


def model(*tensors: TensorFacts) -> tuple[ModuleFacts, ...]:
    return (ModuleFacts("", "Net", -1, 0, tensors),)


def card(activations: int, *, total: int = 10_240, cache: int = 0, others: int = 0) -> DeviceMemory:
    free = total - activations - cache - others
    return DeviceMemory(GPU, "card", False, total, activations=activations, cache=cache, others=others, free=free)


def parts(memory: DeviceMemory) -> dict[str, int]:
    return {name: size for name in CATEGORIES if (size := getattr(memory, name))}


@pytest.mark.parametrize(("asked", "taken"), [(0, 0), (1, 512), (512, 512), (513, 1024)])
def test_cuda_blocks_are_multiples_of_512(asked: int, taken: int) -> None:
    assert block_bytes(asked, GPU) == taken
    assert block_bytes(asked, CPU) == asked


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="-1 bytes"):
        block_bytes(-1, CPU)


def test_a_shared_storage_counts_once_and_as_a_parameter_first() -> None:
    shared = model(tensor(0, 512, role="attribute"), tensor(0, 512, role="buffer"), tensor(0, 512))
    assert held_bytes(shared) == {GPU: {"parameters": 512}}


def test_gradients_of_tied_tensors_count_once() -> None:
    tied = model(tensor(0, 512, grad=512), tensor(0, 512, grad=512, tied="t"))
    assert held_bytes(tied) == {GPU: {"parameters": 512, "gradients": 512}}


def test_devices_and_categories_are_kept_apart() -> None:
    mixed = model(tensor(0, 512), tensor(1, 3, device=CPU, role="attribute"), tensor(2, 1024, role="buffer"))
    optimizer = (tensor(3, 1024, role="optimizer"),)
    assert held_bytes(mixed, optimizer) == {
        GPU: {"parameters": 512, "buffers": 1024, "optimizer": 1024},
        CPU: {"attributes": 3},
    }


def test_what_the_model_holds_is_taken_out_of_the_live_tensors() -> None:
    (memory,) = categorize_memory([card(2048, cache=512)], {GPU: {"parameters": 1024, "gradients": 512}})
    assert parts(memory) == {"parameters": 1024, "gradients": 512, "activations": 512, "cache": 512, "free": 7680}


def test_the_parts_add_up_to_the_total_even_if_the_allocator_knew_of_less() -> None:
    (memory,) = categorize_memory([card(512, others=256)], {GPU: {"parameters": 2048}})
    assert sum(parts(memory).values()) == memory.total
    assert (memory.parameters, memory.activations, memory.others) == (2048, 0, 0)


def test_the_cpu_shows_what_the_model_holds_there() -> None:
    snapshot = Snapshot(model(tensor(0, 100, device=CPU)), memory=(DeviceMemory(CPU, "CPU", False, 0),))
    assert parts(account_memory(snapshot).memory[0]) == {"parameters": 100}


def test_a_device_of_unknown_size_is_given_no_free_bytes() -> None:
    (memory,) = categorize_memory([DeviceMemory(GPU, "GPU", False, 0)], {GPU: {"parameters": 512}})
    assert parts(memory) == {"parameters": 512}


def test_the_models_bytes_are_told_from_the_others_once():
    snapshot = split_model()
    untold = tuple(replace(each, parameters=0, gradients=0, attributes=0, activations=6 * MIB) for each in snapshot.memory)
    told = categorize_memory(untold, held_by(snapshot))
    assert (told[1].parameters, told[1].activations) == (2_052_096, 6 * MIB - 2_052_096)
    assert categorize_memory(told, held_by(snapshot)) == told
