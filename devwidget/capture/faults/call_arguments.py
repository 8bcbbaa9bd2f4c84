"""The tensors that a torch call was given, under the operator's own names for them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import get_testing_overrides

from devwidget.capture.object_fields import word
from devwidget.capture.patching.patched_function import PatchedFunction
from devwidget.capture.tensors import is_tensor, tensors_in


def arguments(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """Tensors of a call with the operator's own names for them."""
    names = _signature(func)
    found: list[tuple[str, torch.Tensor]] = []
    for index, (name, value) in enumerate([*enumerate(args), *kwargs.items()]):
        label = names[index] if type(name) is int and index < len(names) else word(name)
        parts = list(tensors_in(value))
        many = not is_tensor(value)
        found += [(f"{label}[{place}]" if many else label, part) for place, part in enumerate(parts)]
    return found


def _signature(func: Any) -> tuple[str, ...]:
    """Argument names as torch's own override table writes them; () for a function that it does not list."""
    return _signatures().get(id(_original(func)), ())


def _original(func: Any) -> Any:
    """torch's own function, whoever has patched it now."""
    return func.__wrapped__ if type(func) is PatchedFunction else func


@functools.cache
def _signatures() -> dict[int, tuple[str, ...]]:
    """Argument names by the identity of torch's functions, which live as long as torch: nobody else's is ever held."""
    codes = {id(_original(func)): stand_in.__code__ for func, stand_in in get_testing_overrides().items()}
    names = {key: tuple(code.co_varnames[: code.co_argcount]) for key, code in codes.items()}
    return names | {id(torch.embedding): ("weight", "indices")}  # the table has them the wrong way round (torch 2.13)
