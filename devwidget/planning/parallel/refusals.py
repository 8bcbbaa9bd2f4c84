"""What cannot be planned for many ranks, said before any of them is started."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import nn

from devwidget import simulator
from devwidget.planning.parallel.mesh import Mesh
from devwidget.planning.refusals import refuse as refuse_plan
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message

_EXAMPLE = 'parallel={"dp": 8}'
MOST_RANKS = 1 << 16


def mesh_of(parallel: object) -> Mesh:
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


def refuse(model: nn.Module, mesh: Mesh, parallelize: object, optimizer: object) -> None:
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
    if parallelize is None and "tp" in mesh.names:
        raise DevwidgetError(
            Message("how the modules are split over `tp` is not known"),
            why=Message("only fully sharded data parallelism needs no plan of the model"),
            instead='parallelize=lambda model, mesh: parallelize_module(model, mesh["tp"], {...})',
        )
    if parallelize is None and "pp" in mesh.names and not isinstance(model, nn.Sequential):
        raise DevwidgetError(
            Message("how a `{kind}` comes apart into stages is not known", kind=type(model).__name__),
            why=Message("only an `nn.Sequential` does by itself"),
            instead=Message("parallelize=..., a function of model and mesh that returns the stage of this rank"),
        )
    if optimizer is not None and "pp" in mesh.names and isinstance(optimizer, torch.optim.Optimizer):
        raise DevwidgetError(Message("an optimizer of the whole model has no stages"), instead=Message("pass its class"))
