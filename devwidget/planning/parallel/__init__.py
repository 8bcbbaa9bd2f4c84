"""Plans for the ranks of a mesh: one rank of each kind runs a step with fake tensors, in a process of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from devwidget.capture.step.batch import make_arguments
from devwidget.capture.step.sources import kept_source
from devwidget.capture.validation import refuse_model
from devwidget.planning.parallel.forked import run_in_fork
from devwidget.planning.parallel.mesh import group_alike_ranks
from devwidget.planning.parallel.rank_step import RankResult, RankStep
from devwidget.planning.parallel.refusals import parse_mesh, refuse_ignored, refuse_mesh
from devwidget.records.ranks.parallel_plan import ParallelPlan, RankPlan
from devwidget.records.ranks.traced_steps import runs_of
from devwidget.simulator.cluster import UNLIMITED, parse_cluster


def make_parallel_plan(
    model: nn.Module,
    batch: Any,
    *,
    gpus: int,
    placement: Any,
    parallel: object,
    parallelize: Callable[..., Any] | None,
    microbatches: int | None,
    memory: int | str | None,
    card: str | None,
    loss_fn: Callable[..., Any] | None,
    target: Any,
    optimizer: torch.optim.Optimizer | type[torch.optim.Optimizer] | None,
) -> ParallelPlan:
    """See `devwidget.plan`."""
    refuse_model(model)
    mesh = parse_mesh(parallel)
    refuse_mesh(model, mesh, parallelize, optimizer)
    refuse_ignored(gpus, placement, mesh, microbatches)
    unlimited = memory is None and card is None
    (capacity,) = parse_cluster(1, UNLIMITED if unlimited else memory, False, card=card).memory_bytes
    with kept_source(batch):
        inputs = make_arguments(model, batch, target=target, has_loss=loss_fn is not None)
    step = RankStep(model, inputs, loss_fn, optimizer, mesh, parallelize, microbatches or mesh.size_of("pp"))
    stages = _run_stages(step)
    plans = [plan for stage in stages for plan in _plans_of_stage(stage, capacity)]
    plans.sort(key=lambda plan: -plan.peak)
    total = len(list(model.parameters()))
    ways = tuple(dict.fromkeys(way for stage in stages for _, ran in stage for way in ran.ways))
    return ParallelPlan(type(model).__name__, tuple(zip(mesh.names, mesh.sizes, strict=True)), total, tuple(plans), ways)


Stage = list[tuple[tuple[int, ...], RankResult]]
"""Ranks that are alike, and what the first of them ran."""


def _run_stages(step: RankStep) -> list[Stage]:
    """Run each stage of a pipeline in turn, since what one passes on is the input of the next; else one stage."""
    stages, passed = [], None
    for ranks in step.mesh.ranks_by_stage():
        first = _run_rank(step, ranks[0], passed)
        kinds = group_alike_ranks(step.mesh, ranks, first.shards)
        ran = [(kind, first if ranks[0] in kind else _run_rank(step, kind[0], passed)) for kind in kinds]
        stages.append(ran)
        passed = first.passed
    return stages


def _run_rank(step: RankStep, rank: int, given: Any) -> RankResult:
    return run_in_fork(lambda: step.run_rank(rank, given))


def _plans_of_stage(stage: Stage, capacity: int) -> list[RankPlan]:
    return [
        RankPlan(
            runs_of(ranks), capacity, peak=ran.peak, **ran.parts, most_gathered=ran.most_gathered, phases=ran.phases,
            peak_at=ran.peak_at, without=sum(math.prod(shard.shape_at(mesh_at)) == 0 for shard in ran.shards),
        )
        for ranks, ran in stage
        for mesh_at in [ran.at]
    ]  # fmt: skip
