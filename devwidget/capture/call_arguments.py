"""The tensors that a torch call was given, under the operator's own names for them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import get_testing_overrides

from devwidget.capture.tensors import tensors_in


def arguments(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """Tensors of a call with the operator's own names for them."""
    names = _signature(func)
    found: list[tuple[str, torch.Tensor]] = []
    for index, (name, value) in enumerate([*enumerate(args), *kwargs.items()]):
        label = names[index] if isinstance(name, int) and index < len(names) else str(name)
        parts = list(tensors_in(value))
        many = not isinstance(value, torch.Tensor)
        found += [(f"{label}[{place}]" if many else label, part) for place, part in enumerate(parts)]
    return found


@functools.lru_cache(maxsize=256)
def _signature(func: Any) -> tuple[str, ...]:
    """Argument names as torch's own override table writes them; () for a function that it does not list."""
    if func is torch.embedding:  # the table has them the wrong way round (torch 2.13)
        return ("weight", "indices")
    stand_in = get_testing_overrides().get(func)
    code = getattr(stand_in, "__code__", None)
    return () if code is None else tuple(code.co_varnames[: code.co_argcount])
