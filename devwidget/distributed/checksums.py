"""Checksums of what ought to be equal on several ranks: on request only, because values are read, which waits for a GPU."""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch import nn

from devwidget.capture.modules import named_tensors
from devwidget.capture.snapshot.odd_tensors import is_distributed
from devwidget.capture.tensors import seen

MOST_ELEMENTS = 4096
"""Of one tensor that are looked at, at equal distances."""


def checksums_of(model: nn.Module) -> tuple[tuple[str, str], ...]:
    """Path and checksum of each parameter that no axis cuts; buffers, such as the means of a norm, may differ."""
    whole = ((path, _whole(tensor)) for path, tensor in named_tensors(model, "_parameters"))
    return tuple((path, _checksum(tensor)) for path, tensor in whole if tensor is not None)


def _whole(tensor: Any) -> torch.Tensor | None:
    """The tensor of this rank if all ranks have the same one."""
    if not is_distributed(tensor):
        return tensor if type(tensor) in (nn.Parameter, torch.Tensor) and not seen(tensor, "is_meta") else None
    return tensor._local_tensor if all(each.is_replicate() for each in tensor._spec.placements) else None


def _checksum(tensor: torch.Tensor) -> str:
    with torch.no_grad():
        flat = tensor.detach().reshape(-1)
        step = max(1, flat.numel() // MOST_ELEMENTS)
        sampled = flat[::step].contiguous().view(torch.uint8) if flat.numel() else flat.to(torch.uint8)
        return f"{zlib.crc32(bytes(sampled.cpu().tolist())):08x}"
