"""What is no model and no optimizer, with what would have been right."""

from __future__ import annotations

import torch
from torch import nn

from devwidget.records.errors import DevwidgetError


def refuse_model(model: object) -> None:
    """Pass modules.

    Raises:
        DevwidgetError: for everything else, and for a module whose `__init__` never called `super().__init__()`.
    """
    if not isinstance(model, nn.Module):
        raise DevwidgetError(f"the model is {_a(model)}, not a torch.nn.Module", instead=_instead_of_model(model))
    if vars(model).keys().isdisjoint(("_modules", "_actual_script_module")):
        raise DevwidgetError(
            f"this {type(model).__name__} is not initialised",
            why="its `__init__` has not called `super().__init__()`",
            instead="call `super().__init__()` first in `__init__`",
        )


def refuse_optimizer(optimizer: object) -> None:
    """Pass optimizers and None.

    Raises:
        DevwidgetError: for everything else.
    """
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise DevwidgetError(
            f"the optimizer is {_a(optimizer)}, not a torch.optim.Optimizer", instead=_instead_of_optimizer(optimizer)
        )


def _a(value: object) -> str:
    return f"the class `{value.__name__}`" if isinstance(value, type) else f"a `{type(value).__name__}`"


def _instead_of_model(value: object) -> str:
    if isinstance(value, type):
        return f"make an instance first: `{value.__name__}(...)`"
    if isinstance(value, dict) and any(isinstance(part, torch.Tensor) for part in dict.values(value)):
        return "a state_dict is no model: load it with `model.load_state_dict(...)` and pass the model"
    if isinstance(value, list | tuple) and any(isinstance(part, nn.Module) for part in value):
        return "put the modules in `torch.nn.ModuleList` or `torch.nn.Sequential`"
    if isinstance(inner := _field(value, "model"), nn.Module):
        return f"pass its `.model`, a {type(inner).__name__}"
    return "pass the model itself, an instance of `torch.nn.Module`"


def _instead_of_optimizer(value: object) -> str:
    if isinstance(value, type) and issubclass(value, torch.optim.Optimizer):
        return f"make an instance first: `{value.__name__}(model.parameters())`"
    if isinstance(_field(value, "optimizer"), torch.optim.Optimizer):
        return "pass its `.optimizer`"
    return "pass something like `torch.optim.Adam(model.parameters())`"


def _field(value: object, name: str) -> object:
    return getattr(value, "__dict__", {}).get(name)
