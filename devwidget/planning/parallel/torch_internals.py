"""What plans for many ranks take from torch that it does not promise to keep: each name once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses import FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._pytree import tree_leaves as tree_leaves

__all__ = ["FakeTensorMode", "join_fake_group", "local_of", "shape_of_shard", "spec_of"]


def shape_of_shard(
    shape: Sequence[int], sizes: Sequence[int], coordinate: Sequence[int], placements: Sequence[Any]
) -> tuple[int, ...]:
    """The shape of a rank's part of a tensor, without its rank running."""
    local, _ = _compute_local_shape_and_global_offset(tuple(shape), tuple(sizes), list(coordinate), tuple(placements))
    return tuple(local)


def join_fake_group(rank: int, ranks: int) -> None:
    """Be one rank of a process group whose collectives do nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this rank holds."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def spec_of(tensor: torch.Tensor) -> Any:
    """How a DTensor is spread; None for another tensor."""
    return tensor._spec if isinstance(tensor, DTensor) else None
