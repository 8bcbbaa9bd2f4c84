"""What is no model, no optimizer, no loss and no list of words, with what would have been right."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from devwidget.capture.modules import is_module, own
from devwidget.capture.object_fields import class_name, dict_of, is_a, parts_of
from devwidget.capture.tensors import is_tensor
from devwidget.records.errors import DevwidgetError


def refuse_model(model: object) -> None:
    """Pass modules.

    Raises:
        DevwidgetError: for everything else, and for a module whose `__init__` never called `super().__init__()`.
    """
    if not is_module(model):
        raise DevwidgetError(f"the model is {_a(model)}, not a torch.nn.Module", instead=_instead_of_model(model))
    if own(model).keys().isdisjoint(("_modules", "_actual_script_module")):
        raise DevwidgetError(
            f"this {class_name(type(model))} is not initialised",
            why="its `__init__` has not called `super().__init__()`",
            instead="call `super().__init__()` first in `__init__`",
        )


def refuse_optimizer(optimizer: object) -> None:
    """Pass optimizers and None.

    Raises:
        DevwidgetError: for everything else.
    """
    if optimizer is not None and not is_a(optimizer, torch.optim.Optimizer):
        raise DevwidgetError(
            f"the optimizer is {_a(optimizer)}, not a torch.optim.Optimizer", instead=_instead_of_optimizer(optimizer)
        )


def refuse_loss(loss_fn: object) -> None:
    """Pass what can be called, and None.

    Raises:
        DevwidgetError: for everything else.
    """
    if is_a(loss_fn, type) and issubclass(loss_fn, nn.Module):
        raise DevwidgetError(f"the loss is {_a(loss_fn)}", instead=f"make an instance first: `{class_name(loss_fn)}()`")
    if loss_fn is not None and not callable(loss_fn):
        raise DevwidgetError(f"the loss is {_a(loss_fn)}, which cannot be called", instead="pass `torch.nn.CrossEntropyLoss()`")


def words_of(value: object, name: str, example: str) -> tuple[str, ...]:
    """One text, or several: as a tuple.

    Raises:
        DevwidgetError: if it is neither.
    """
    words = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (None,)
    if not all(isinstance(word, str) for word in words):
        raise DevwidgetError(f"`{name}` is {_a(value)}, not a text or several", instead=example)
    return tuple(word for word in words if isinstance(word, str))


def _a(value: object) -> str:
    return f"the class `{class_name(value)}`" if is_a(value, type) else f"a `{class_name(type(value))}`"


def _instead_of_model(value: object) -> str:
    if is_a(value, type):
        return f"make an instance first: `{class_name(value)}(...)`"
    if is_a(value, dict) and any(map(is_tensor, parts_of(value))):
        return "a state_dict is no model: load it with `model.load_state_dict(...)` and pass the model"
    if is_a(value, (list, tuple)) and any(map(is_module, parts_of(value))):
        return "put the modules in `torch.nn.ModuleList` or `torch.nn.Sequential`"
    if is_module(inner := _field(value, "model")):
        return f"pass its `.model`, a {class_name(type(inner))}"
    return "pass the model itself, an instance of `torch.nn.Module`"


def _instead_of_optimizer(value: object) -> str:
    if is_a(value, type) and issubclass(value, torch.optim.Optimizer):
        return f"make an instance first: `{class_name(value)}(model.parameters())`"
    if is_a(_field(value, "optimizer"), torch.optim.Optimizer):
        return "pass its `.optimizer`"
    return "pass something like `torch.optim.Adam(model.parameters())`"


def _field(value: object, name: str) -> object:
    return dict_of(value).get(name)
