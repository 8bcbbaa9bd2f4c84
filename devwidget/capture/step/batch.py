"""A batch becomes the arguments of `forward`, and is refused with forward's signature if it does not fit."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

from torch import nn

from devwidget.capture.modules import own
from devwidget.capture.object_fields import class_name, is_a, items_of, parts_of
from devwidget.capture.step.sources import is_source, take_item
from devwidget.capture.tensors import is_tensor
from devwidget.records.errors import BatchError, message
from devwidget.records.schema.message import Message


class Inputs:
    """A batch with positional and keyword parts.

    Example:
        `devwidget.trace(model, devwidget.Inputs(images, mask=mask))` calls `model(images, mask=mask)`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the model and the loss are called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    target: Any = None


def make_arguments(model: nn.Module, batch: Any, *, target: Any = None, has_loss: bool = False) -> Arguments:
    """The call that a batch stands for.

    Args:
        model: whose `forward` it must fit.
        batch: a tensor is one argument; a tuple or list is `*args`; a mapping is `**kwargs`; `Inputs` is both; of a
            DataLoader or an iterator the next item counts, see `take_item`.
        target: for the loss. If it is None and a loss is given, the last item of a batch that has one item too many
            for `forward` is the target, as loaders of pairs give it.
        has_loss: whether there is a loss function.

    Raises:
        BatchError: if there is no batch, or it does not fit.
    """
    if batch is None:
        raise BatchError(
            Message("no batch to trace"),
            why=Message("the model is run on real inputs"),
            instead="devwidget.trace(model, next(iter(loader)))",
        )
    args, kwargs = _split_batch(take_item(batch) if is_source(batch) else batch)
    call = _find_callable(model)
    problem = _describe_misfit(call, args, kwargs)
    if problem and has_loss and target is None and len(args) > 1 and not _describe_misfit(call, args[:-1], kwargs):
        return Arguments(args[:-1], kwargs, args[-1])
    if problem:
        name = class_name(type(model))
        raise BatchError(
            Message("the batch does not fit {name}.forward: {problem}", name=name, problem=problem),
            why=Message(
                "forward{signature} was given {described}",
                signature=inspect.signature(call),
                described=_describe_arguments(args, kwargs),
            ),
            instead=Message("pass a tuple for several arguments, a dict for named ones, or devwidget.Inputs(...) for both"),
        )
    return Arguments(args, kwargs, target)


def parameter_names(model: nn.Module) -> tuple[str, ...]:
    """What `forward` calls its arguments; nothing of a scripted or C++ forward."""
    try:
        return tuple(inspect.signature(_find_callable(model)).parameters)
    except (TypeError, ValueError):
        return ()


def _split_batch(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if is_a(batch, Inputs):
        return batch.args, dict(batch.kwargs)
    if is_a(batch, (tuple, list)) and not is_a(batch, nn.utils.rnn.PackedSequence):  # which is one argument
        return tuple(parts_of(batch)), {}
    items = items_of(batch)
    if items is None and is_mapping(type(batch)):
        items = list(dict(batch).items())
    return ((batch,), {}) if items is None else ((), dict(items))


_WRAPPERS = nn.DataParallel, nn.parallel.DistributedDataParallel
is_mapping = functools.partial(type.__subclasscheck__, Mapping)
"""`issubclass` that asks nobody: other classes than those that derive from `Mapping` are one argument."""


def _find_callable(model: nn.Module) -> Any:
    inner = model
    while any(type.__subclasscheck__(kind, type(inner)) for kind in _WRAPPERS):  # an abstract class compares and hashes classes
        inner = inner._modules["module"]  # type: ignore[assignment]
    children = own(inner).get("_modules")  # without a `__getattr__` of the user's, which may raise
    compiled = children.get("_orig_mod") if is_a(children, dict) else None
    return (inner if compiled is None else compiled).forward


def _takes_count(call: Any, count: int) -> bool:
    """Whether a method written in plain Python surely takes so many positional arguments: a signature costs 60 us."""
    function = call.__func__ if type(call) is MethodType else None
    if type(function) is not FunctionType or function.__dict__ or function.__code__.co_kwonlyargcount:
        return False
    most = function.__code__.co_argcount
    return most - len(function.__defaults__ or ()) <= count + 1 <= most


def _describe_misfit(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    if not kwargs and _takes_count(call, len(args)):
        return ""
    try:
        inspect.signature(call).bind(*args, **kwargs)
    except TypeError as error:
        return message(error)
    except ValueError:  # a scripted or C++ forward has no signature to check against
        return ""
    return ""


def _describe_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    def describe_value(value: Any) -> str:
        return class_name(type(value)) + (str(list(value.shape)) if is_tensor(value) else "")

    return ", ".join(
        [*map(describe_value, args), *(f"{key}={describe_value(value)}" for key, value in kwargs.items())]
    ) or Message("nothing")
