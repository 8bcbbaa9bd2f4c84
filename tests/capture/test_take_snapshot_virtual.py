"""On virtual GPUs a snapshot shows the virtual devices, and the memory of each adds up."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from devwidget.capture.snapshot.take_snapshot import take_snapshot
from devwidget.gpus import simulate
from devwidget.memory import account_memory
from devwidget.records.device import CPU, DeviceId
from devwidget.records.memory import CATEGORIES

FIRST, SECOND = DeviceId("cuda", 0), DeviceId("cuda", 1)
WEIGHT, BIAS = 64 * 64 * 4, 512


def split_model() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(64, 64).to("cuda:0"), nn.Linear(64, 64).to("cuda:1"))
    model.mask = torch.zeros(10)
    return model


def test_devices_are_the_virtual_ones_and_a_plain_attribute_stays_on_the_cpu() -> None:
    with simulate(gpus=2):
        snapshot = take_snapshot(split_model(), virtual_gpus=2)
    found = {f"{facts.path}.{each.name}": each.device for facts in snapshot.modules for each in facts.tensors}
    assert found == {".mask": CPU, "0.weight": FIRST, "0.bias": FIRST, "1.weight": SECOND, "1.bias": SECOND}
    assert snapshot.virtual_gpus == 2


def test_a_training_step_is_told_apart_by_category_and_adds_up() -> None:
    with simulate(gpus=2, memory="1GiB"):
        model = split_model()
        optimizer = torch.optim.Adam(model.parameters())
        model[1](model[0](torch.ones(4, 64, device="cuda:0")).to("cuda:1")).sum().backward()
        optimizer.step()
        snapshot = account_memory(take_snapshot(model, optimizer=optimizer, virtual_gpus=2))
    for memory in snapshot.memory[:2]:
        assert (memory.parameters, memory.gradients, memory.optimizer) == (WEIGHT + BIAS, WEIGHT + BIAS, 2 * (WEIGHT + BIAS))
        assert sum(getattr(memory, name) for name in CATEGORIES) == memory.total == 1 << 30
    assert (snapshot.memory[2].device, snapshot.memory[2].attributes) == (CPU, 40)


def test_without_values_tensors_have_their_full_size() -> None:
    with simulate(gpus=2, compute=False):
        facts = take_snapshot(nn.Linear(64, 64, device="cuda:1"), virtual_gpus=2).modules[0].tensors[0]
    assert (facts.device, facts.bytes, facts.storage_bytes, facts.note) == (SECOND, WEIGHT, WEIGHT, "")


@pytest.mark.parametrize("mode", ["inference", "no_grad"])
def test_a_snapshot_inside_another_mode_is_the_same(mode: str) -> None:
    model = nn.Linear(4, 4)
    before = take_snapshot(model)
    with torch.inference_mode() if mode == "inference" else torch.no_grad():
        assert take_snapshot(model) == before


def test_gpus_that_are_hidden_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    with simulate(gpus=3):
        memory = take_snapshot(nn.Linear(2, 2).cuda(), virtual_gpus=3).memory
    assert [each.device for each in memory] == [FIRST, SECOND, CPU]
