"""How a model is spread where the user does not say: stages of equal length over `pp`, fully sharded over the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from devwidget.capture.modules import registered


def spread(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """The part of a rank: each block of a list is one unit of FSDP2, and what is left another.

    Two dimensions besides `pp` are taken for HSDP: replicas over the first, shards over the second.
    """
    names = mesh.mesh_dim_names or ()
    part = _stage(model, mesh) if "pp" in names else model
    dims = tuple(name for name in names if name != "pp")
    if dims:
        own = mesh if len(dims) == len(names) else mesh[dims if len(dims) > 1 else dims[0]]
        for unit in (*_units(part), part):
            fully_shard(unit, mesh=own)
    return part


def _stage(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    blocks: list[Any] = [block for _, block in registered(model, "_modules")]
    at, stages = mesh["pp"].get_local_rank(), mesh["pp"].size()
    return nn.Sequential(*blocks[len(blocks) * at // stages : len(blocks) * (at + 1) // stages])


def _units(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost modules in lists that have parameters."""
    for _, child in registered(module, "_modules"):
        if isinstance(module, nn.ModuleList | nn.Sequential) and any(True for _ in child.parameters()):
            yield child
        else:
            yield from _units(child)
