"""What cannot be planned for many ranks, said before any of them is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from devwidget import simulator
from devwidget.planning import refuse_plan as refuse_plan
from devwidget.planning.parallel.mesh import REPLICAS, SHARDS, STAGES, TENSORS, Mesh
from devwidget.records.errors import DevwidgetError, nearest
from devwidget.records.schema.message import Message

_EXAMPLE = 'parallel={"dp": 8}'
_FORMS = Message(
    'what has a plan by itself: DDP as {ddp}, FSDP2 as {fsdp}, HSDP as {hsdp}, a pipeline as {pipeline}; other names, '
    'such as {tp}, with parallelize=..., a function of model and mesh',
    ddp='{"ddp": 8}', fsdp='{"fsdp": 8}', hsdp='{"replicate": 2, "shard": 4}',
    pipeline='{"pp": 4}, {"pp": 4, "fsdp": 2}', tp='{"dp": 4, "tp": 2}',
)  # fmt: skip
"""What the names without `parallelize` may be, together."""
MOST_RANKS = 1 << 16


def parse_mesh(parallel: object) -> Mesh:
    """The mesh that was asked for.

    Raises:
        DevwidgetError: if it is none.
    """
    if not isinstance(parallel, Mapping) or not parallel:
        raise DevwidgetError(
            Message("{parallel} is no mesh", parallel=f"{parallel!r:.80}"),
            why=Message("it names each dimension and its size"),
            instead=_EXAMPLE,
        )
    for name, size in parallel.items():
        if type(name) is not str or type(size) is not int or size < 1:
            raise DevwidgetError(
                Message("a dimension {name} of size {size} is none", name=f"{name!r:.40}", size=f"{size!r:.40}"),
                instead=_EXAMPLE,
            )
    mesh = Mesh(tuple(parallel), tuple(parallel.values()))
    if mesh.ranks > MOST_RANKS:
        raise DevwidgetError(
            Message("{ranks} ranks are too many", ranks=mesh.ranks),
            why=Message("at most {most} are planned", most=MOST_RANKS),
        )
    return mesh


def refuse_names(mesh: Mesh) -> None:
    """Refuse names that say nothing of how a model is spread, and combinations of them that have no plan.

    Raises:
        DevwidgetError: with the nearest name, and what there is.
    """
    known = (*REPLICAS, *SHARDS, STAGES, TENSORS)
    for name in mesh.names:
        if name not in known:
            what = Message(
                "what a mesh does over {name} is not known{hint}", name=repr(name), hint=nearest(name.lower(), known)
            )
            raise DevwidgetError(what, instead=_FORMS)
    of_data = tuple(REPLICAS if name in REPLICAS else SHARDS for name in mesh.names if name != STAGES)
    forms = {(SHARDS,), (REPLICAS, SHARDS), () if STAGES in mesh.names else (REPLICAS,)}
    if TENSORS not in mesh.names and of_data not in forms:
        raise DevwidgetError(
            Message("how a model is spread over {names} together is not known", names=" x ".join(mesh.names)), instead=_FORMS
        )


def refuse_ignored(gpus: int, placement: Any, mesh: Mesh, microbatches: int | None) -> None:
    """Refuse what would say nothing in a plan of this mesh.

    Raises:
        DevwidgetError: with what would have been right.
    """
    if gpus not in (0, mesh.ranks):
        raise DevwidgetError(
            Message("{gpus} GPUs are not the {ranks} ranks of the mesh", gpus=gpus, ranks=mesh.ranks),
            why=Message("each rank has one GPU"),
            instead=f"gpus={mesh.ranks}",
        )
    if placement != "as is":
        raise DevwidgetError(
            Message("a mesh has no placement"),
            why=Message("each rank has one GPU"),
            instead=Message("`parallel` or `placement`"),
        )
    if microbatches is not None and STAGES not in mesh.names:
        raise DevwidgetError(Message("only a pipeline has microbatches"), instead='parallel={"pp": 4}')


def refuse_mesh(model: nn.Module, mesh: Mesh, parallelize: object, optimizer: object) -> None:
    """Refuse what makes no sense.

    Raises:
        DevwidgetError: with what would have been right.
    """
    refuse_plan(optimizer, "as is")
    if simulator.active() is not None:
        raise DevwidgetError(
            Message("virtual GPUs are running"),
            why=Message("ranks are planned without"),
            instead=Message("stop them first, then plan"),
        )
    if not hasattr(os, "fork"):
        raise DevwidgetError(
            Message("ranks cannot be planned here"), why=Message("each runs in a forked process, which this system has not")
        )
    if dist.is_available() and dist.is_initialized():
        raise DevwidgetError(
            Message("a process group is running"),
            why=Message("a plan makes one of its own"),
            instead=Message("plan before the job"),
        )
    if parallelize is not None and not callable(parallelize):
        raise DevwidgetError(
            Message("`parallelize` is no function"), instead="def parallelize(model, mesh): fully_shard(model, mesh=mesh)"
        )
    if parallelize is None:
        refuse_names(mesh)
    if parallelize is None and TENSORS in mesh.names:
        raise DevwidgetError(
            Message("how the modules are split over `tp` is not known"),
            why=Message("only copies, FSDP2 and stages need no plan of the modules"),
            instead='parallelize=lambda model, mesh: parallelize_module(model, mesh["tp"], {...})',
        )
    if parallelize is None and STAGES in mesh.names and not isinstance(model, nn.Sequential):
        raise DevwidgetError(
            Message("how a `{kind}` comes apart into stages is not known", kind=type(model).__name__),
            why=Message("only an `nn.Sequential` does by itself"),
            instead=Message("parallelize=..., a function of model and mesh that returns the stage of this rank"),
        )
    if optimizer is not None and STAGES in mesh.names and isinstance(optimizer, torch.optim.Optimizer):
        raise DevwidgetError(Message("an optimizer of the whole model has no stages"), instead=Message("pass its class"))
