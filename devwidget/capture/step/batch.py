"""A batch becomes the arguments of `forward`: taken from a loader that stays where it is, refused if it does not fit."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.utils.data import DataLoader

from devwidget.capture.modules import own
from devwidget.capture.object_fields import (
    class_name,
    copy_items,
    dict_of,
    field_of,
    find_class_attribute,
    is_a,
    items_of,
    parts_of,
)
from devwidget.capture.tensors import is_tensor
from devwidget.records.errors import BatchError, message
from devwidget.records.schema.message import Message

ITEM_TAKEN = Message("`{what}` ({why})", what="batch", why=Message("one item was taken from the iterator"))
"""What a trace says of an iterator that moves on."""
_WRAPPED = ("base_dataloader", "_dataloader")


def is_source(batch: Any) -> bool:
    """Whether the next item of what was given is the batch."""
    kind = type(batch)
    is_iterator = find_class_attribute(kind, "__next__") is not None and find_class_attribute(kind, "__iter__") is not None
    return is_loader(batch) or (is_iterator and not issubclass(kind, type))


def is_loader(batch: Any) -> bool:
    """True for a `DataLoader`, also in the hands of accelerate and Lightning, whose classes do not derive from it."""
    return is_a(batch, DataLoader) or any(is_a(field_of(batch, name), DataLoader) for name in _WRAPPED)


def take_item(source: Any) -> Any:
    """The next item; of a loader as a new loop over it begins.

    Raises:
        BatchError: if there is none.
    """
    problem, iterator = Message("the iterator is exhausted"), source
    if is_loader(source):
        problem, iterator = Message("the loader is empty"), iter(_copy_loader(source))
    try:
        return next(iterator)
    except StopIteration:
        raise BatchError(problem, instead=Message("next(iter(loader)), or the loader itself")) from None


@contextlib.contextmanager
def kept_source(batch: Any) -> Iterator[None]:
    """What a loader draws from is after the block what it was before."""
    if not is_loader(batch):
        yield
        return
    from devwidget.capture.restore import keep_state

    with keep_state(None) as kept:
        kept.add_roots(batch=batch)
        yield


def moves_on(batch: Any) -> bool:
    """Whether this is an iterator: one item that was taken cannot be put back."""
    return is_source(batch) and not is_loader(batch)


def _copy_loader(loader: Any) -> Any:
    """A copy of a loader without its persistent workers: a new loop over those would end the loop that the program is in."""
    twin = object.__new__(type(loader))
    for name, value in copy_items(dict_of(loader)):
        if name == "_iterator":
            dict_of(twin)[name] = None
        elif is_a(value, DataLoader):
            dict_of(twin)[name] = _copy_loader(value)
        else:
            dict_of(twin)[name] = value
    return twin


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
    if target is not None and not has_loss:
        raise BatchError(
            Message("there is a target, and no loss that it is for"),
            why=Message("without a loss the step is a forward pass, to which no target is given"),
            instead="devwidget.trace(model, batch, loss_fn=torch.nn.functional.cross_entropy, target=target)",
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
    if items is None:
        return ((batch,), {})
    return ((), dict(items))


_WRAPPERS = nn.DataParallel, nn.parallel.DistributedDataParallel
is_mapping = functools.partial(type.__subclasscheck__, Mapping)
"""`issubclass` that asks nobody: other classes than those that derive from `Mapping` are one argument."""


def _find_callable(model: nn.Module) -> Any:
    inner = model
    while any(type.__subclasscheck__(kind, type(inner)) for kind in _WRAPPERS):  # an abstract class compares and hashes classes
        inner = inner._modules["module"]  # type: ignore[assignment]
    children = own(inner).get("_modules")  # without a `__getattr__` of the user's, which may raise
    if is_a(children, dict):
        compiled = children.get("_orig_mod")
    else:
        compiled = None
    return (inner if compiled is None else compiled).forward


def _describe_misfit(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
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
