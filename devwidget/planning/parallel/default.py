"""How a model is spread where the user does not say: stages over `pp`, DDP over replicas alone, else FSDP2 over the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from devwidget.capture.modules import registered
from devwidget.planning.parallel.mesh import REPLICAS, STAGES


def spread(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """The part of a rank: its copy in DDP; or each block of a list is one unit of FSDP2, and what is left another.

    Replicas over the first dimension and shards over the second are HSDP.
    """
    names = mesh.mesh_dim_names or ()
    part = _stage(model, mesh) if STAGES in names else model
    dims = tuple(name for name in names if name != STAGES)
    if len(dims) == 1 and dims[0] in REPLICAS:
        return DistributedDataParallel(part, process_group=mesh[dims[0]].get_group())
    if dims:
        own = mesh if len(dims) == len(names) else mesh[dims if len(dims) > 1 else dims[0]]
        for unit in (*_units(part), part):
            fully_shard(unit, mesh=own)
    return part


def _stage(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    blocks: list[Any] = [block for _, block in registered(model, "_modules")]
    at, stages = mesh[STAGES].get_local_rank(), mesh[STAGES].size()
    return nn.Sequential(*blocks[len(blocks) * at // stages : len(blocks) * (at + 1) // stages])


def _units(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost modules in lists that have parameters."""
    for _, child in registered(module, "_modules"):
        if isinstance(module, nn.ModuleList | nn.Sequential) and any(True for _ in child.parameters()):
            yield child
        else:
            yield from _units(child)
