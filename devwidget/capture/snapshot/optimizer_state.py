"""The tensors of an optimizer: its state for each parameter, and settings that are tensors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

from devwidget.capture.object_fields import dict_of, format_value, items_of, parts_of
from devwidget.capture.snapshot.attribute_search import AttributeSearch, Found
from devwidget.capture.snapshot.tensor_reader import TensorReader
from devwidget.capture.tensors import is_optimizer, is_tensor
from devwidget.records.snapshot import TensorFacts


def read_optimizer(
    optimizer: torch.optim.Optimizer, parameter_paths: dict[int, str], reader: TensorReader
) -> Iterator[TensorFacts]:
    """Yield every state tensor, named `<parameter path>.<state>`. Parameters of other models are named by their group."""
    for name, tensor, note in optimizer_tensors(optimizer, parameter_paths):
        yield reader.read_tensor("", name, "optimizer", tensor, note)


def optimizer_tensors(optimizer: torch.optim.Optimizer, parameter_paths: dict[int, str]) -> Iterator[Found]:
    """Yield the state tensors themselves."""
    search = AttributeSearch(is_registered=lambda value: False, most=sys.maxsize)
    inner = innermost_optimizer(optimizer)
    states = {id(parameter): state for parameter, state in items_of(dict_of(inner).get("state")) or ()}
    for at, group in enumerate(groups_of(inner)):
        for number, parameter in enumerate(parts_of(group.get("params"))):
            path = parameter_paths.get(id(parameter), f"param_groups[{at}][{number}]")
            for key, value in items_of(states.get(id(parameter))) or ():
                yield from search.find_tensors(f"{path}.{format_value(key)}", value)
        for key, value in group.items():
            if key != "params":
                yield from search.find_tensors(f"param_groups[{at}].{key}", value)


def attribute_tensors(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield tensors in attributes of a user's optimizer, outside of its parameters."""
    trained = {id(parameter) for parameter in parameters_of(optimizer)}
    search, fields = AttributeSearch(lambda value: id(value) in trained), dict_of(optimizer)
    for name in search.find_candidates(fields, fields.keys() - {"state", "param_groups", "defaults"}):
        yield from ((place, tensor) for place, tensor, _ in search.find_tensors(name, fields[name]))


def groups_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the parameter groups of an optimizer, as stored."""
    groups = [items_of(group) or () for group in parts_of(dict_of(optimizer).get("param_groups"))]
    return [{key: value for key, value in group if type(key) is str} for group in groups]


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[Any]:
    """Yield the parameters of an optimizer."""
    return (parameter for group in groups_of(innermost_optimizer(optimizer)) for parameter in parts_of(group.get("params")))


def tensors_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the parameters that are tensors."""
    return [each for each in parameters_of(optimizer) if is_tensor(each)]


def innermost_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return the optimizer with the state, inside wrappers of accelerate and of torch's sharded optimizers."""
    while True:
        fields = dict_of(optimizer)
        inner = fields.get("optimizer", fields.get("optim"))
        if not is_optimizer(inner) or inner is optimizer:
            return optimizer
        optimizer = inner
