"""Which stages of a pipeline a process runs is read from torch's own objects, wherever a variable holds them."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn

from devwidget.extras.ranks.answer import find_stages
from devwidget.extras.ranks.stacks import main_frames

pipelining = pytest.importorskip("torch.distributed.pipelining")


@pytest.fixture
def stage(monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # that torch replaces
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield pipelining.PipelineStage(nn.Linear(2, 2), 2, 4, torch.device("cpu"))
    dist.destroy_process_group()


class Trainer:
    def __init__(self, **fields):
        self.__dict__.update(fields)


@pytest.mark.parametrize("kept", [
    lambda stage: stage, lambda stage: Trainer(stage=stage), lambda stage: Trainer(stages=[stage]),
])  # fmt: skip
def test_a_stage_that_a_variable_holds_is_found(stage, kept):
    here = kept(stage)
    assert here is not None
    assert find_stages(main_frames()) == (2,)


def test_what_only_looks_like_a_stage_is_none():
    here = Trainer(stage_index=3)
    assert here.stage_index == 3
    assert find_stages(main_frames()) == ()
