"""Choices among unknown numbers, such as the experts of a token: a plan takes them to be spread evenly, and says so."""

from __future__ import annotations

from typing import Any

import torch

CHOOSERS = frozenset({"topk", "argmax", "argmin", "max", "min", "sort"})


def spread(chooser: str, dim: int | None, given: torch.Tensor, result: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The tensor of the places that an operator chose, and each place in turn for it; None if it chose no places.

    Args:
        chooser: name of the operator.
        dim: along which it chose; None for all elements.
        given: what it chose from.
        result: what it returned: places, or values and places.
    """
    places = result if chooser.startswith("arg") else result[1] if isinstance(result, (list, tuple)) else None
    if places is None or not given.dim() or not given.numel():
        return None
    options = given.numel() if dim is None else given.shape[dim]
    in_turn = torch.arange(places.numel()) % options
    if dim is None or places.dim() < given.dim():
        return places, in_turn.reshape(places.shape)
    return places, in_turn.reshape(places.movedim(dim, -1).shape).movedim(-1, dim)
