"""The tensors of an optimizer: what it keeps for each parameter, and settings that are tensors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

from devwidget.capture.reading.tensor_reader import TensorReader
from devwidget.capture.unregistered import Found, Search
from devwidget.records.tensor import TensorFacts


def read_optimizer(
    optimizer: torch.optim.Optimizer, parameter_paths: dict[int, str], reader: TensorReader
) -> Iterator[TensorFacts]:
    """Every state tensor, named `<parameter path>.<state>`; parameters of other models count by their group."""
    for name, tensor, note in optimizer_tensors(optimizer, parameter_paths):
        yield reader.read("", name, "optimizer", tensor, note)


def optimizer_tensors(optimizer: torch.optim.Optimizer, parameter_paths: dict[int, str]) -> Iterator[Found]:
    """The state tensors themselves."""
    search = Search(is_registered=lambda value: False, most=sys.maxsize)
    inner = _innermost(optimizer)
    for at, group in enumerate(inner.param_groups):
        for number, parameter in enumerate(group["params"]):
            path = parameter_paths.get(id(parameter), f"param_groups[{at}][{number}]")
            yield from search.each(_named(path, dict.get(inner.state, parameter, {})), 4, "")
        settings = {key: value for key, value in group.items() if key != "params"}
        yield from search.each(_named(f"param_groups[{at}]", settings), 2, "")


def _named(path: str, values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((f"{path}.{key}", value) for key, value in values.items())


def _innermost(optimizer: Any) -> Any:
    """The optimizer with the state, out of the wrappers of accelerate and of torch's sharded optimizers."""
    while isinstance(inner := vars(optimizer).get("optimizer", vars(optimizer).get("optim")), torch.optim.Optimizer):
        optimizer = inner
    return optimizer
