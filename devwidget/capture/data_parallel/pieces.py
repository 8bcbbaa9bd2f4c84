"""The tensors that DataParallel cuts and joins, by name."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch

from devwidget.capture.object_fields import is_a, items_of, key_text, parts_of
from devwidget.capture.recording.event_log import bytes_of, device_id, format_dtype
from devwidget.capture.tensors import DEEPEST, is_tensor
from devwidget.records.parallel import Piece

Named = dict[str, torch.Tensor]


def arguments_by_name(module: torch.nn.Module, args: Any, kwargs: Any) -> Named:
    """The tensors among the arguments of `forward`, called as its signature calls them."""
    return {path: tensor for name, value in named_arguments(module, args, kwargs) for path, tensor in by_name(value, name)}


def named_arguments(module: torch.nn.Module, args: Any, kwargs: Any) -> list[tuple[str, Any]]:
    """The arguments of `forward`, called as its signature calls them."""
    names = _positional_names(type(module).forward)
    named = [(names[i] if i < len(names) else f"args[{i}]", value) for i, value in enumerate(args)]
    return [*named, *kwargs.items()]


def by_name(value: Any, name: str, depth: int = DEEPEST) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors in nested lists, tuples and dicts, with the expression that reaches each of them."""
    if is_tensor(value):
        yield name, value
    elif depth and is_a(value, (list, tuple)):
        for index, part in enumerate(parts_of(value)):
            yield from by_name(part, f"{name}[{index}]", depth - 1)
    elif depth:
        for key, part in items_of(value) or ():
            yield from by_name(part, f"{name}[{key_text(key)}]", depth - 1)


def _positional_names(forward: Any) -> list[str]:
    """Names of the positional parameters after `self`; [] where they cannot be read."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())[1:]
    except (TypeError, ValueError):  # scripted and C++ functions
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in kinds]


class ScatterOffsets:
    """Parts of tensors in the order of the replicas; tells where each part begins in the whole."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._ends: dict[str, int] = {}

    def add_piece(self, name: str, part: torch.Tensor, source: torch.device) -> Piece:
        """The next part of a tensor."""
        start = self._ends.get(name, 0)
        stop = self._ends[name] = start + self.measure_length(part)
        return Piece(name, tuple(part.shape), format_dtype(part.dtype), bytes_of(part), start, stop, device_id(source))

    def measure_length(self, part: torch.Tensor) -> int:
        """How long a part is along the axis that is cut; a number is joined as a vector of one."""
        return part.shape[self._dim] if -part.dim() <= self._dim < part.dim() else 1
