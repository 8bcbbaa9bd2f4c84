"""256 ranks of a mesh dp 32 x tp 8 on one machine: each a forked process in a process group that does nothing."""

import functools
import importlib
import math
import os
import time

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from devwidget.distributed.job import find_identity
from devwidget.distributed.report import Reporter
from devwidget.planning.parallel import run_in_fork
from devwidget.planning.parallel.mesh import Mesh, Shard
from devwidget.planning.parallel.rank_step import join_fake_group
from devwidget.records.ranks.merging import Heard, merge
from devwidget.records.ranks.traced_steps import numbers_in
from devwidget.rules.ranks.over_ranks import judge_cluster

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="each rank is a forked process")
MESH = Mesh(("dp", "tp"), (32, 8))
ROWS = 25
"""Of each weight's part after `tp`: for the first 25 of `dp` a row each, and none for those from rank 200 on."""
SAMPLED = (0, 1, 7, 8, 9, 96, 103, 128, 191, 192, 198, 199, 200, 207, 248, 255)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 8 * ROWS, bias=False), nn.Linear(8 * ROWS, ROWS, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def report_of(rank):
    """What one rank says; in a process of its own."""
    join_fake_group(rank, MESH.ranks)
    mesh = init_device_mesh("cpu", MESH.sizes, mesh_dim_names=MESH.names)
    model = nn.Sequential(Block(), Block())
    for block in model:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    return Reporter(model, lambda: ()).make_report(find_identity())


@functools.cache
def job(numbers):
    importlib.import_module("torch._dynamo")  # as DTensor does at its first use, which is nine tenths of the time of a rank
    return judge_cluster(merge(Heard(rank, "answered", run_in_fork(lambda rank=rank: report_of(rank))) for rank in numbers))


def check(numbers):
    """Placements are as few as the arithmetic of the mesh says, and who holds nothing is found."""
    found = job(numbers)
    assert [(axis.name, axis.size) for axis in found.axes] == [("dp", 32), ("tp", 8)]
    assert [found.ranks[rank].coordinates for rank in numbers] == [
        tuple(MESH.coordinates_of(rank).values()) for rank in numbers
    ]
    bytes_of = {rank: found.placements[found.ranks[rank].placement].bytes for rank in numbers}
    assert {rank for rank in numbers if bytes_of[rank] == 0} == {rank for rank in numbers if rank >= 8 * ROWS}
    assert len(found.placements) == 2
    (empty,) = [finding for finding in found.findings if finding.kind == "empty-ranks"]
    assert "200" in empty.headline
    return found


@pytest.mark.slow
def test_of_sixteen_ranks_the_distinct_placements_and_the_empty_ones_are_found():
    found = check(SAMPLED)
    assert sum(rank.state == "unknown" for rank in found.ranks) == MESH.ranks - len(SAMPLED)


@pytest.mark.slow
def test_sizes_are_those_that_the_mesh_gives():
    found = job(SAMPLED)
    for placement in found.placements:
        at = MESH.coordinates_of(next(numbers_in(placement.ranks)))
        for number, module in enumerate(found.modules):
            for tensor in found.holdings[placement.held[number]] if placement.held[number] >= 0 else ():
                rows = tensor.shape[0] // 8 if module.path.endswith("up") else tensor.shape[0]
                (local,) = Shard((rows,), ("dp",), (32,), (_along_rows(),)).shape_at(at)
                assert math.prod(tensor.local_shape) == local * tensor.shape[1] // (1 if module.path.endswith("up") else 8)


def _along_rows():
    from torch.distributed.tensor import Shard

    return Shard(0)


@pytest.mark.fuzz
@pytest.mark.timeout(900)
def test_of_256_ranks_too():
    began = time.perf_counter()
    found = check(tuple(range(MESH.ranks)))
    print(
        f"256 ranks in {time.perf_counter() - began:.0f} s: {len(found.placements)} placements, {len(found.findings)} findings"
    )
