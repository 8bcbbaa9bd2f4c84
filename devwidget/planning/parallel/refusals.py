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

_EXAMPLE = 'parallel={"dp": 8}'
MOST_RANKS = 1 << 16


def mesh_of(parallel: object) -> Mesh:
    """The mesh that was asked for.

    Raises:
        DevwidgetError: if it is none.
    """
    if not isinstance(parallel, Mapping) or not parallel:
        raise DevwidgetError(f"{parallel!r:.80} is no mesh", why="it names each dimension and its size", instead=_EXAMPLE)
    for name, size in parallel.items():
        if type(name) is not str or type(size) is not int or size < 1:
            raise DevwidgetError(f"a dimension {name!r:.40} of size {size!r:.40} is none", instead=_EXAMPLE)
    mesh = Mesh(tuple(parallel), tuple(parallel.values()))
    if mesh.ranks > MOST_RANKS:
        raise DevwidgetError(f"{mesh.ranks} ranks are too many", why=f"at most {MOST_RANKS} are planned")
    return mesh


def refuse(model: nn.Module, mesh: Mesh, parallelize: object, optimizer: object) -> None:
    """Refuse what makes no sense.

    Raises:
        DevwidgetError: with what would have been right.
    """
    refuse_plan(optimizer, "as is")
    if simulator.active() is not None:
        raise DevwidgetError("virtual GPUs are running", why="ranks are planned without", instead="stop them first, then plan")
    if not hasattr(os, "fork"):
        raise DevwidgetError("ranks cannot be planned here", why="each runs in a forked process, which this system has not")
    if dist.is_available() and dist.is_initialized():
        raise DevwidgetError("a process group is running", why="a plan makes one of its own", instead="plan before the job")
    if parallelize is not None and not callable(parallelize):
        raise DevwidgetError(
            "`parallelize` is no function", instead="def parallelize(model, mesh): fully_shard(model, mesh=mesh)"
        )
    if parallelize is None and "tp" in mesh.names:
        raise DevwidgetError(
            "how the modules are split over `tp` is not known",
            why="only fully sharded data parallelism needs no plan of the model",
            instead='parallelize=lambda model, mesh: parallelize_module(model, mesh["tp"], {...})',
        )
    if parallelize is None and "pp" in mesh.names and not isinstance(model, nn.Sequential):
        raise DevwidgetError(
            f"how a `{type(model).__name__}` comes apart into stages is not known",
            why="only an `nn.Sequential` does by itself",
            instead="parallelize=..., a function of model and mesh that returns the stage of this rank",
        )
    if optimizer is not None and "pp" in mesh.names and isinstance(optimizer, torch.optim.Optimizer):
        raise DevwidgetError("an optimizer of the whole model has no stages", instead="pass its class")
