"""By what a rank trains: what is read of real optimizers, modules and policies."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from devwidget.capture.patching.global_hooks import STEP_ENDS
from devwidget.capture.undo import Undo
from devwidget.extras.ranks.records.rank import Setting
from devwidget.extras.ranks.step_history import StepHistory, read_policies


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # that torch replaces
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_policy_of_each_module_is_read_that_has_another_than_the_one_around_it(group: None):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model[0], mp_policy=half)
    fully_shard(model[1], mp_policy=MixedPrecisionPolicy())
    fully_shard(model, mp_policy=half)
    assert list(read_policies(model)) == [
        Setting(
            "precision", "mp_policy", "param_dtype=bfloat16, reduce_dtype=float32, output_dtype=None, cast_forward_inputs=True"
        ),
        Setting(
            "precision", "mp_policy of 1", "param_dtype=None, reduce_dtype=None, output_dtype=None, cast_forward_inputs=True"
        ),
    ]


@pytest.fixture
def history() -> Iterator[tuple[nn.Module, StepHistory]]:
    model, undo = nn.Linear(2, 1), Undo()
    found = StepHistory(lambda: model, checksums=False)
    STEP_ENDS.call_hook(found.note_step, undo)
    yield model, found
    undo.run_steps()
    assert found.fault == ""


def test_of_a_training_that_has_ended_no_module_is_told_in_the_steps_of_the_next(history: tuple[nn.Module, StepHistory]):
    model, found = history
    for steps in (5, 2):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        walked = [run.first for run in found.list_settings() if all(each.kind != "optimizer" for each in run.settings)]
        assert walked == [step for step in (1, 2, 4) if step <= steps]
        del optimizer
        gc.collect()
        assert found.list_settings() == ()  # nothing is trained now
