"""Reject invalid models, optimizers, losses, word lists and callables, with a valid example."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from devwidget.capture.object_fields import class_name, dict_of, format_value, is_a, parts_of
from devwidget.capture.tensors import is_module, is_optimizer, is_tensor, own
from devwidget.records.errors import ArgumentError, DevwidgetError
from devwidget.records.schema.message import Message


def refuse_model(model: object) -> None:
    """Accept modules.

    Raises:
        DevwidgetError: for anything else, and for a module whose `__init__` never called `super().__init__()`.
    """
    if not is_module(model):
        raise DevwidgetError(
            Message("the model is {given}, not a torch.nn.Module", given=_with_article(model)), instead=_instead_of_model(model)
        )
    if own(model).keys().isdisjoint(("_modules", "_actual_script_module")):
        raise DevwidgetError(
            Message("this {kind} is not initialised", kind=class_name(type(model))),
            why=Message("its `__init__` did not call `super().__init__()`"),
            instead=Message("call `super().__init__()` first in `__init__`"),
        )


def refuse_optimizer(optimizer: object) -> None:
    """Accept optimizers and None.

    Raises:
        DevwidgetError: for anything else.
    """
    if optimizer is not None and not is_optimizer(optimizer):
        raise DevwidgetError(
            Message("the optimizer is {given}, not a torch.optim.Optimizer", given=_with_article(optimizer)),
            instead=_instead_of_optimizer(optimizer),
        )


def refuse_loss(loss_fn: object) -> None:
    """Accept callables and None.

    Raises:
        DevwidgetError: for anything else.
    """
    if is_a(loss_fn, type) and issubclass(loss_fn, nn.Module):
        raise DevwidgetError(
            Message("the loss is {given}", given=_with_article(loss_fn)),
            instead=Message("create an instance first: `{kind}()`", kind=class_name(loss_fn)),
        )
    if loss_fn is not None and not callable(loss_fn):
        raise DevwidgetError(
            Message("the loss is {given}, which is not callable", given=_with_article(loss_fn)),
            instead=Message("pass `torch.nn.CrossEntropyLoss()`"),
        )


def refuse_flags(**flags: object) -> None:
    """Accept True and False.

    Raises:
        ArgumentError: for the first other value.
    """
    for name, value in flags.items():
        if not is_a(value, bool):
            raise ArgumentError(
                Message("`{name}` is {given}, neither True nor False", name=name, given=_with_article(value)),
                instead=f"{name}=True, {name}=False",
            )


def refuse_counts(**counts: object) -> None:
    """Accept integers from 1 on.

    Raises:
        ArgumentError: for the first other value.
    """
    for name, value in counts.items():
        if not (is_a(value, int) and value >= 1):
            raise ArgumentError(
                Message("`{name}` is {value}, not a whole number of 1 or more", name=name, value=_format_argument(value)),
                instead=f"{name}=4",
            )


def refuse_verify(verify: object) -> None:
    """Accept values of `verify`.

    Raises:
        DevwidgetError: with the three valid values.
    """
    if not (is_a(verify, bool) or (is_a(verify, str) and verify == "auto")):
        raise DevwidgetError(
            Message("verify={value} does not say when fixes are verified", value=_format_argument(verify)),
            instead='verify="auto", verify=True or verify=False',
        )


def refuse_text(name: str, value: object, example: str) -> None:
    """Accept a text.

    Raises:
        ArgumentError: for anything else.
    """
    if not is_a(value, str):
        raise ArgumentError(
            Message("`{name}` is {given}, not a string", name=name, given=_with_article(value)), instead=example
        )


def refuse_call_back(name: str, value: object, example: str) -> None:
    """Accept callables and None.

    Raises:
        ArgumentError: for anything else.
    """
    if value is not None and not callable(value):
        raise ArgumentError(
            Message("`{name}` is {given}, which is not callable", name=name, given=_with_article(value)), instead=example
        )


def words_of(value: object, name: str, example: str) -> tuple[str, ...]:
    """Return one text, or several, as a tuple.

    Raises:
        DevwidgetError: for anything else.
    """
    if isinstance(value, str):
        return (value,)
    words = tuple(value) if isinstance(value, Iterable) else (None,)
    if all(isinstance(word, str) for word in words):
        return words
    raise DevwidgetError(
        Message("`{name}` is {given}, not a string or several strings", name=name, given=_with_article(value)),
        instead=example,
    )


def _format_argument(value: object) -> str:
    if is_a(value, str):
        return repr(value)
    return format_value(value)


def _with_article(value: object) -> str:
    if is_a(value, type):
        return Message("the class `{kind}`", kind=class_name(value))
    return Message("a `{kind}`", kind=class_name(type(value)))


def _instead_of_model(value: object) -> str:
    if is_a(value, type):
        return Message("create an instance first: `{kind}(...)`", kind=class_name(value))
    if is_a(value, dict) and any(map(is_tensor, parts_of(value))):
        return Message("a state_dict is not a model: load it with `model.load_state_dict(...)` and pass the model")
    if is_a(value, (list, tuple)) and any(map(is_module, parts_of(value))):
        return Message("put the modules in `torch.nn.ModuleList` or `torch.nn.Sequential`")
    inner = dict_of(value).get("model")
    if is_module(inner):
        return Message("pass its `.model`, a {kind}", kind=class_name(type(inner)))
    return Message("pass the model itself, an instance of `torch.nn.Module`")


def _instead_of_optimizer(value: object) -> str:
    if is_a(value, type) and issubclass(value, torch.optim.Optimizer):
        return Message("create an instance first: `{kind}(model.parameters())`", kind=class_name(value))
    if is_optimizer(dict_of(value).get("optimizer")):
        return Message("pass its `.optimizer`")
    return Message("pass something like `torch.optim.Adam(model.parameters())`")
