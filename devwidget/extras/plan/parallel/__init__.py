"""Plans for the ranks of a mesh: one rank of each kind runs a step on a virtual GPU, in a process of its own."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from devwidget import gpus
from devwidget.capture.step.batch import kept_source, make_arguments
from devwidget.capture.validation import refuse_model
from devwidget.extras.plan.child_process import ask_copy
from devwidget.extras.plan.loops import Loop
from devwidget.extras.plan.make_plan import ask_for_loop, refuse_plan
from devwidget.extras.plan.parallel.mesh import REPLICAS, SHARDS, STAGES, Mesh, group_alike_ranks
from devwidget.extras.plan.parallel.rank_step import RankResult, RankStep
from devwidget.extras.plan.records.parallel_plan import ParallelPlan, RankPlan
from devwidget.gpus.virtual_machine import UNLIMITED, parse_cluster
from devwidget.records.errors import DevwidgetError, error_text, nearest
from devwidget.records.runs import runs_of
from devwidget.records.schema.message import Message

T = TypeVar("T")
# What torch says once it has threads of its own for devices (`Engine::initialize_device_threads_pool` in `engine.cpp`).
_NO_BACKWARD = "autograd's threading in combination with fork"


def run_in_fork(call: Callable[[], T]) -> T:
    """Return what `call` returns in a copy of this process; raise DevwidgetError in place of any exception."""
    return ask_copy(partial(_name_failure, call))


def _name_failure(call: Callable[[], T]) -> T:
    """Call it in the copy, where the exceptions of the user's stay."""
    try:
        return call()
    except DevwidgetError:
        raise
    except BaseException as error:
        if _NO_BACKWARD in str(error):
            raise DevwidgetError(
                Message("ranks can no longer be planned in this process"),
                why=Message("each runs in a forked copy, where torch cannot run backward once it has threads for GPUs"),
                instead=Message("plan in a new kernel, before the first backward"),
            ) from error
        raise DevwidgetError(
            Message("the step fails on this mesh: {error}", error=error_text(error)),
            why=Message("the plan runs the step of one rank of each kind"),
        ) from error


_EXAMPLE = 'parallel={"dp": 8}'
_FORMS = Message(
    'what has a plan by itself: DDP as {ddp}, FSDP2 as {fsdp}, HSDP as {hsdp}, a pipeline as {pipeline}; other names, '
    'such as {tp}, with parallelize=..., a function of model and mesh',
    ddp='{"ddp": 8}', fsdp='{"fsdp": 8}', hsdp='{"replicate": 2, "shard": 4}',
    pipeline='{"pp": 4}, {"pp": 4, "fsdp": 2}', tp='{"dp": 4, "tp": 2}',
)  # fmt: skip
"""What the names without `parallelize` may be, together."""
MOST_RANKS = 1 << 16


def _parse_mesh(parallel: object) -> Mesh:
    if not isinstance(parallel, Mapping) or not parallel:
        raise DevwidgetError(
            Message("`parallel` cannot be {parallel}", parallel=f"{parallel!r:.80}"),
            why=Message("it names each dimension and its size"),
            instead=_EXAMPLE,
        )
    for name, size in parallel.items():
        if type(name) is not str or type(size) is not int or size < 1:
            raise DevwidgetError(
                Message("the dimension {name} cannot have size {size}", name=f"{name!r:.40}", size=f"{size!r:.40}"),
                instead=_EXAMPLE,
            )
    mesh = Mesh(tuple(parallel), tuple(parallel.values()))
    if mesh.ranks > MOST_RANKS:
        raise DevwidgetError(
            Message("{ranks} ranks are too many", ranks=mesh.ranks),
            why=Message("at most {most} are planned", most=MOST_RANKS),
        )
    return mesh


def _refuse_mesh(model: nn.Module, mesh: Mesh, parallelize: object, optimizer: object) -> None:
    """Refuse what a mesh would do to a model by its names alone, where these do not say it."""
    refuse_plan(optimizer, "as is")
    if gpus.active() is not None:
        raise DevwidgetError(Message("virtual GPUs are running"), instead=Message("stop them first, then plan"))
    if not hasattr(os, "fork"):
        raise DevwidgetError(
            Message("ranks cannot be planned here"),
            why=Message("each runs in a forked process, which this system does not support"),
        )
    has_stages = STAGES in mesh.names
    if has_stages and isinstance(optimizer, torch.optim.Optimizer):
        raise DevwidgetError(Message("an optimizer of the whole model has no stages"), instead=Message("pass its class"))
    if parallelize is not None and not callable(parallelize):
        raise DevwidgetError(
            Message("`parallelize` is not a function"), instead="def parallelize(model, mesh): fully_shard(model, mesh=mesh)"
        )
    if parallelize is not None:
        return
    _refuse_names(mesh)
    if has_stages and not isinstance(model, nn.Sequential):
        raise DevwidgetError(
            Message("cannot split a `{kind}` into stages", kind=type(model).__name__),
            why=Message("only an `nn.Sequential` does by itself"),
            instead=Message("parallelize=..., a function of model and mesh that returns the stage of this rank"),
        )


def _refuse_names(mesh: Mesh) -> None:
    """Refuse names that say nothing of how a model is spread, and combinations of them that have no plan."""
    known = (*REPLICAS, *SHARDS, STAGES)
    for name in mesh.names:
        if name not in known:
            what = Message("unknown dimension {name}{hint}", name=repr(name), hint=nearest(name.lower(), known))
            raise DevwidgetError(what, instead=_FORMS)
    kinds = [name for name in mesh.names if name != STAGES]
    of_data = tuple(REPLICAS if name in REPLICAS else SHARDS for name in kinds)
    alone = () if STAGES in mesh.names else (REPLICAS,)
    if of_data not in {(SHARDS,), (REPLICAS, SHARDS), alone}:
        raise DevwidgetError(
            Message("the combination of {names} is not supported", names=" x ".join(mesh.names)), instead=_FORMS
        )


def _refuse_ignored(mesh: Mesh, asked: dict[str, Any]) -> None:
    """Refuse what would say nothing in a plan of this mesh."""
    has_stages = STAGES in mesh.names
    if asked["gpus"] not in (None, mesh.ranks):
        what = Message("{gpus} GPUs are not the {ranks} ranks of the mesh", gpus=asked["gpus"], ranks=mesh.ranks)
        raise DevwidgetError(what, why=Message("each rank has one GPU"), instead=f"gpus={mesh.ranks}")
    if asked["placement"] != "as is":
        what = Message("a mesh has no placement")
        raise DevwidgetError(what, why=Message("each rank has one GPU"), instead=Message("`parallel` or `placement`"))
    if asked["microbatches"] is not None and not has_stages:
        raise DevwidgetError(Message("only a pipeline has microbatches"), instead='parallel={"pp": 4}')
    if has_stages and (asked["loop"] != Loop() or asked["checkpointing"]):
        what = Message("a plan for a pipeline only supports the loop of its schedule")
        raise DevwidgetError(what, instead=Message("leave the loop out"))


def make_parallel_plan(
    model: nn.Module, batch: Any, target: Any, asked: dict[str, Any], options: dict[str, Any]
) -> ParallelPlan:
    """See `devwidget.plan`; `asked` are its arguments, `options` the arguments of the loop."""
    refuse_model(model)
    mesh, loss_fn, card = _parse_mesh(asked["parallel"]), asked["loss_fn"], asked["card"]
    asked |= ask_for_loop(asked["optimizer"], loss_fn, target, options)
    _refuse_ignored(mesh, asked)
    _refuse_mesh(model, mesh, asked["parallelize"], asked["optimizer"])
    unlimited = asked["memory"] is None and card is None
    cluster = parse_cluster(1, UNLIMITED if unlimited else asked["memory"], False, card=card)
    with kept_source(batch):
        inputs = make_arguments(model, batch, target=target, loss_fn=loss_fn)
    count, loop, checkpointing = asked["microbatches"] or mesh.size_of("pp"), asked["loop"], asked["checkpointing"]
    how = asked["optimizer"], mesh, asked["parallelize"], count, loop, checkpointing, cluster
    step = RankStep(model, inputs, loss_fn, *how)
    stages = _run_stages(step)
    plans = [plan for stage in stages for plan in _plans_of_stage(stage)]
    plans.sort(key=lambda plan: -plan.peak)
    total = len(list(model.parameters()))
    ways = tuple(dict.fromkeys(way for stage in stages for _, ran in stage for way in ran.ways))
    sizes = tuple(zip(mesh.names, mesh.sizes, strict=True))
    said = ways, loop.to_record(checkpointing), card or ""
    return ParallelPlan(type(model).__name__, sizes, total, tuple(plans), *said)


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


def _plans_of_stage(stage: Stage) -> Iterator[RankPlan]:
    for ranks, ran in stage:
        without = sum(math.prod(shard.shape_at(ran.at)) == 0 for shard in ran.shards)
        yield replace(ran.plan, ranks=runs_of(ranks), without=without)
