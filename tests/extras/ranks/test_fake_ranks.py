"""Ranks of a mesh dp 32 x tp 8 on one machine: each a forked process in a process group that does nothing."""

from __future__ import annotations

import importlib
import os

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from devwidget.extras.plan.parallel import run_in_fork
from devwidget.extras.plan.parallel.rank_step import join_fake_group
from devwidget.extras.ranks.answer import Reporter
from devwidget.extras.ranks.job import find_identity
from devwidget.extras.ranks.records.cluster import Rank
from devwidget.extras.ranks.records.columns import lay_out_columns
from devwidget.extras.ranks.records.merging import merge
from devwidget.extras.ranks.rules.over_ranks import judge_cluster

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "fork"), reason="each rank is a forked process")]
ROWS = 25
"""Of each weight's part after `tp`: for the first 25 of `dp` a row each, and none for those from rank 200 on."""


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 8 * ROWS, bias=False), nn.Linear(8 * ROWS, ROWS, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def report_of(rank):
    """What one rank says; in a process of its own."""
    join_fake_group(rank, 256)
    mesh = init_device_mesh("cpu", (32, 8), mesh_dim_names=("dp", "tp"))
    model = Block()
    parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    return Reporter(model, lambda: ()).make_report(find_identity())


def test_of_256_ranks_the_distinct_placements_and_the_empty_ones_are_found():
    importlib.import_module("torch._dynamo")  # as DTensor does at its first use, which is nine tenths of the time of a rank
    heard = [Rank("answered", run_in_fork(lambda rank=rank: report_of(rank))) for rank in (9, 199, 200)]
    found = judge_cluster(merge(heard))
    assert [(axis.name, axis.size) for axis in found.axes] == [("dp", 32), ("tp", 8)]
    assert [rank.said.coordinates for rank in found.ranks if rank.state == "answered"] == [(1, 1), (24, 7), (25, 0)]
    placements = [(column.ranks, column.bytes) for column in lay_out_columns(found).each]
    assert placements == [((9, 199), 4 * (16 + ROWS)), ((200,), 0)]
    (empty,) = [finding for finding in found.findings if finding.kind == "empty-ranks"]
    assert "200" in empty.headline
