"""The mesh of a plan: which of its ranks hold shards of the same shapes, and how it spreads a model by default."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from devwidget.capture import torch_internals
from devwidget.capture.tensors import registered_entries

REPLICAS = ("ddp", "replicate", "dp_replicate")
"""Names of a dimension whose ranks hold equal copies."""
SHARDS = ("dp", "fsdp", "shard", "dp_shard")
"""Names of a dimension over which FSDP2 cuts the parameters."""
STAGES = "pp"

At = dict[str, int]
"""Where a rank is: the name of each dimension, and its coordinate."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """Names and sizes of dimensions, with ranks in row-major order, as `init_device_mesh` numbers them."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return math.prod(self.sizes)

    def size_of(self, name: str) -> int:
        """Return the size of one dimension; 1 for one that is not there."""
        return dict(zip(self.names, self.sizes, strict=True)).get(name, 1)

    def coordinates_of(self, rank: int) -> At:
        """Return the coordinates of a rank."""
        coordinates = []
        for size in reversed(self.sizes):
            rank, coordinate = divmod(rank, size)
            coordinates.append(coordinate)
        return dict(zip(self.names, reversed(coordinates), strict=True))

    def ranks_by_stage(self) -> list[list[int]]:
        """Return the ranks of each stage of a pipeline; all of them in one list where there is none."""
        stage = [self.coordinates_of(rank).get(STAGES, 0) for rank in range(self.ranks)]
        return [[rank for rank in range(self.ranks) if stage[rank] == number] for number in range(self.size_of(STAGES))]


@dataclass(frozen=True, slots=True)
class Shard:
    """How one parameter is spread.

    Attributes:
        shape: of the whole.
        dims: names of the dimensions of its mesh; () for a parameter that is not a DTensor.
        sizes: of these.
        placements: one for each of them.
    """

    shape: tuple[int, ...]
    dims: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    placements: tuple[Any, ...] = ()

    def shape_at(self, at: At) -> tuple[int, ...]:
        """Return the shape of the part that a rank holds."""
        if not self.dims:
            return self.shape
        coordinates = [at[name] for name in self.dims]
        local, _ = torch_internals.local_shape_and_offset(self.shape, self.sizes, coordinates, self.placements)
        return tuple(local)


def group_alike_ranks(mesh: Mesh, ranks: Sequence[int], shards: Sequence[Shard]) -> list[tuple[int, ...]]:
    """Group ranks with shards of the same shapes, in the order of the first of each kind."""
    distinct = list(dict.fromkeys(shards))
    kinds: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for rank in ranks:
        at = mesh.coordinates_of(rank)
        kinds.setdefault(tuple(shard.shape_at(at) for shard in distinct), []).append(rank)
    return [tuple(kind) for kind in kinds.values()]


def spread_by_default(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """The part of a rank: its copy in DDP; or each block of a list is one unit of FSDP2, and what is left another.

    Replicas over the first dimension and shards over the second are HSDP.
    """
    dims, part = list(mesh.mesh_dim_names or ()), model
    if STAGES in dims:
        dims.remove(STAGES)
        part = _cut_stage(model, mesh)
    if not dims:
        return part
    own = mesh[tuple(dims)]
    if dims[0] in REPLICAS and len(dims) == 1:
        return DistributedDataParallel(part, process_group=own.get_group())
    for unit in (*_find_units(part), part):
        fully_shard(unit, mesh=own)
    return part


def _cut_stage(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    blocks: list[Any] = [block for _, block in registered_entries(model, "_modules")]
    at, stages = mesh[STAGES].get_local_rank(), mesh[STAGES].size()
    return nn.Sequential(*blocks[len(blocks) * at // stages : len(blocks) * (at + 1) // stages])


def _find_units(module: nn.Module) -> Iterator[nn.Module]:
    for _, child in registered_entries(module, "_modules"):
        if isinstance(module, nn.ModuleList | nn.Sequential) and any(True for _ in child.parameters()):
            yield child
        else:
            yield from _find_units(child)
