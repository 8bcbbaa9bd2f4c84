"""The user's optimizer again, for the parameters of the copy."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn


def optimizer_for(model: nn.Module, copied: nn.Module, optimizer: Any) -> torch.optim.Optimizer | None:
    """An optimizer of the same class and settings for the copy; groups are matched by the names of parameters."""
    if optimizer is None:
        return None
    parameters = dict(copied.named_parameters())
    if isinstance(optimizer, type):
        made: torch.optim.Optimizer = optimizer(parameters.values())
        return made
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = [
        {**group, "params": [parameters[names[id(p)]] for p in group["params"] if id(p) in names]}
        for group in optimizer.param_groups
    ]
    known = inspect.signature(type(optimizer)).parameters
    same: torch.optim.Optimizer = type(optimizer)(groups, **{k: v for k, v in optimizer.defaults.items() if k in known})
    return same
