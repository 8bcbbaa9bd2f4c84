"""The mesh of a plan, and which of its ranks hold shards of the same shapes: arithmetic, without running any of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from devwidget.planning.parallel.torch_internals import shape_of_shard

REPLICAS = ("ddp", "replicate", "dp_replicate")
"""Names of a dimension whose ranks hold equal copies."""
SHARDS = ("dp", "fsdp", "shard", "dp_shard")
"""Names of a dimension over which FSDP2 cuts the parameters."""
STAGES, TENSORS = "pp", "tp"

At = dict[str, int]
"""Where a rank is: the name of each dimension, and its coordinate."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """Ranks in row-major order, as `init_device_mesh` numbers them.

    Attributes:
        names: of its dimensions.
        sizes: of its dimensions.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def ranks(self) -> int:
        """How many there are."""
        return math.prod(self.sizes)

    def size_of(self, name: str) -> int:
        """Of one dimension; 1 for one that is not there."""
        return dict(zip(self.names, self.sizes, strict=True)).get(name, 1)

    def at(self, rank: int) -> At:
        """The coordinates of a rank."""
        coordinates = []
        for size in reversed(self.sizes):
            rank, coordinate = divmod(rank, size)
            coordinates.append(coordinate)
        return dict(zip(self.names, reversed(coordinates), strict=True))

    def stages(self) -> list[list[int]]:
        """The ranks of each stage of a pipeline; all of them in one list without."""
        stage = [self.at(rank).get(STAGES, 0) for rank in range(self.ranks)]
        return [[rank for rank in range(self.ranks) if stage[rank] == number] for number in range(self.size_of(STAGES))]


@dataclass(frozen=True, slots=True)
class Shard:
    """How one parameter is spread.

    Attributes:
        shape: of the whole.
        dims: names of the dimensions of its mesh; () for a parameter that is no DTensor.
        sizes: of these.
        placements: one for each of them.
    """

    shape: tuple[int, ...]
    dims: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    placements: tuple[Any, ...] = ()

    def shape_at(self, at: At) -> tuple[int, ...]:
        """Of the part that a rank holds."""
        if not self.dims:
            return self.shape
        return shape_of_shard(self.shape, self.sizes, [at[name] for name in self.dims], self.placements)


def kinds_of_ranks(mesh: Mesh, ranks: Sequence[int], shards: Sequence[Shard]) -> list[tuple[int, ...]]:
    """Ranks with shards of the same shapes together, in the order of the first of each kind."""
    distinct = list(dict.fromkeys(shards))
    kinds: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for rank in ranks:
        at = mesh.at(rank)
        kinds.setdefault(tuple(shard.shape_at(at) for shard in distinct), []).append(rank)
    return [tuple(kind) for kind in kinds.values()]
