"""The tensors inside arguments and results, found without running anybody's code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

DEEPEST = 6


def tensors_in(value: Any, depth: int = DEEPEST) -> Iterator[torch.Tensor]:
    """Tensors in nested lists, tuples and dicts (a HuggingFace output is a dict)."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part, depth - 1)
    elif depth and isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part, depth - 1)


def replace_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same nesting with every tensor changed; what is no list, tuple or dict stays the same object."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(replace_tensors(part, change) for part in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(replace_tensors(part, change) for part in value))
    if isinstance(value, tuple) and type(value).__module__ == "torch.return_types":
        return type(value)(replace_tensors(part, change) for part in value)
    if type(value) is dict:
        return {key: replace_tensors(part, change) for key, part in value.items()}
    return value
