"""What a block has left, told so that it can be held against what another run of the same block has left."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from devwidget.capture.restore.containers import container_keeper
from devwidget.capture.restore.keepers import Kept
from devwidget.capture.restore.search import LEAVES

_DEEPEST = 8
_MOST_NUMBERS = 2**18
"""Of a larger tensor numbers at equal distances are read: to read all of a state of Adam takes as long as a part of a step."""
_COMPARED = LEAVES - {id(slice)}
"""A slice may hold what runs code of the user where it is compared."""
_UNORDERED = (set, frozenset)
_TENSORS = frozenset(map(id, (torch.Tensor, nn.Parameter)))
_LENGTHS = (torch.float32, torch.float64, torch.complex64, torch.complex128)
"""Dtypes whose numbers can be squared and added; those of others are converted."""


@dataclass(frozen=True, slots=True)
class StateChanges:
    """What is not as it was, but for gradients and random numbers that were drawn.

    Attributes:
        parts: storages that were written, and containers with what they hold: of what was there before who it is, of what is
            new its kind, of a tensor its device, dtype and shape.
        lengths: of the values of each storage and new tensor among them, as tensors of no dimension.
    """

    parts: tuple[Any, ...]
    lengths: tuple[torch.Tensor, ...]


class Untold(Exception):
    """There is a change that cannot be told so."""


def describe_changes(
    states: Iterable[Kept],
    containers: Iterable[Any],
    storages: Iterable[tuple[int, torch.Tensor]],
    is_kept: Callable[[Any], bool],
) -> StateChanges:
    """What objects, once-empty containers and storages are now that have changed.

    Args:
        storages: an id of each, and all that is in it.
        is_kept: whether an object was there before.

    Raises:
        Untold: where something new is neither a number, a text, a plain tensor nor a container of these.
    """
    description = _Description(is_kept)
    for state in states:
        if state.keeper is not container_keeper(type(state.owner)):
            raise Untold
        description.add_container(state.owner, state.keeper.parts(state.keeper.read(state.owner)), _DEEPEST)
    for each in containers:
        description.add_value(each, _DEEPEST)
    for key, values in storages:
        description.add_tensor(key, values)
    return StateChanges(tuple(description.parts), tuple(description.lengths))


class _Description:
    def __init__(self, is_kept: Callable[[Any], bool]) -> None:
        self._is_kept = is_kept
        self.parts: list[Any] = []
        self.lengths: list[torch.Tensor] = []

    def add_value(self, value: Any, depth: int) -> None:
        kind = type(value)
        if id(kind) in _COMPARED:
            self.parts.append((kind, value))
        elif self._is_kept(value):
            self.parts.append(id(value))
        elif id(kind) in _TENSORS and value.layout is torch.strided and not value.is_quantized:
            self.add_tensor((kind, value.requires_grad), value)
        else:
            self._add_new(value, depth)

    def _add_new(self, value: Any, depth: int) -> None:
        container = container_keeper(type(value))
        parts = None if container is None else list(container.parts(container.read(value)))
        if parts is None or not depth or (issubclass(type(value), _UNORDERED) and len(parts) > 1):
            raise Untold
        self.add_container(type(value), parts, depth - 1)

    def add_container(self, name: Any, parts: Iterable[Any], depth: int) -> None:
        parts = list(parts)
        self.parts.append((id(name), len(parts)))
        for each in parts:
            self.add_value(each, depth)

    def add_tensor(self, name: Any, tensor: torch.Tensor) -> None:
        self.parts.append((name, tensor.device, tensor.dtype, tensor.shape))
        values = tensor.detach().reshape(-1)[:: 1 + tensor.numel() // _MOST_NUMBERS]
        self.lengths.append(torch.linalg.vector_norm(values if values.dtype in _LENGTHS else values.to(torch.float32)))
