"""The user's optimizer again, for the parameters of the copy."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from devwidget.capture.modules import named_tensors
from devwidget.capture.object_fields import parts_of
from devwidget.capture.snapshot.optimizer_state import groups_of


def optimizer_for(model: nn.Module, copied: nn.Module, optimizer: Any) -> torch.optim.Optimizer | None:
    """An optimizer of the same class and settings for the copy; groups are matched by the names of parameters."""
    if optimizer is None:
        return None
    parameters = dict(named_tensors(copied, "_parameters"))
    if isinstance(optimizer, type):
        made: torch.optim.Optimizer = optimizer(parameters.values())
        return made
    names = {id(parameter): name for name, parameter in named_tensors(model, "_parameters")}
    groups = [
        {**group, "params": [parameters[names[id(p)]] for p in parts_of(group.get("params")) if id(p) in names]}
        for group in groups_of(optimizer)
    ]
    known = inspect.signature(type(optimizer)).parameters
    same: torch.optim.Optimizer = type(optimizer)(groups, **{k: v for k, v in optimizer.defaults.items() if k in known})
    return same
