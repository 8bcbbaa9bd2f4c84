"""Turn a batch into the arguments of `forward`: take it from a loader without advancing that, and check that it fits."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

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
from devwidget.capture.tensors import is_module, is_tensor, registered_entries, replace_tensors, tensors_in
from devwidget.records.errors import BatchError, message
from devwidget.records.schema.message import Message

ITEM_TAKEN = Message("`{what}` ({why})", what="batch", why=Message("one item was taken from the iterator"))
"""Note in a trace about an iterator that advances."""
TARGET_LEFT_OUT = Message(
    "{kind}: {reason}",
    kind=Message("the last item of the batch"),
    reason=Message("left out as the target, because there is no loss"),
)
"""Note in a trace about a pair that was traced without a loss."""
_WRAPPED = ("base_dataloader", "_dataloader")


def is_source(batch: Any) -> bool:
    """Return whether the batch is the next item of the argument."""
    kind = type(batch)
    is_iterator = find_class_attribute(kind, "__next__") is not None and find_class_attribute(kind, "__iter__") is not None
    return is_loader(batch) or (is_iterator and not issubclass(kind, type))


def is_loader(batch: Any) -> bool:
    """Return True for a `DataLoader`, also one wrapped by accelerate or Lightning, whose classes do not derive from it."""
    return is_a(batch, DataLoader) or any(is_a(field_of(batch, name), DataLoader) for name in _WRAPPED)


def take_item(source: Any) -> Any:
    """Return the next item; for a loader, the first item of a new loop.

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
    """Restore what a loader draws from after the block."""
    if not is_loader(batch):
        yield
        return
    from devwidget.capture.restore import keep_state

    with keep_state(None) as kept:
        kept.add_roots(batch=batch)
        yield


def moves_on(batch: Any) -> bool:
    """Return whether this is an iterator: a taken item cannot be put back."""
    return is_source(batch) and not is_loader(batch)


def _copy_loader(loader: Any) -> Any:
    """Return a copy of a loader without its persistent workers: a new loop over those would end the program's loop."""
    twin = object.__new__(type(loader))
    for name, value in copy_items(dict_of(loader)):
        dict_of(twin)[name] = _copy_loader(value) if is_a(value, DataLoader) else value
    if "_iterator" in dict_of(twin):
        dict_of(twin)["_iterator"] = None
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
    """Arguments of the model and of the loss."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    target: Any = None


def make_arguments(model: nn.Module, batch: Any, *, target: Any = None, loss_fn: Callable[..., Any] | None = None) -> Arguments:
    """Return the arguments that a batch stands for.

    Args:
        model: model whose `forward` it must fit.
        batch: a tensor is one argument; a tuple or list is `*args`; a mapping is `**kwargs`; `Inputs` is both; for a DataLoader
            or an iterator the next item is used, see `take_item`, without a loss also without its target.
        target: target of the loss. If it is None, the last item of the batch is the target where the loss needs one, or where
            `forward` takes one item fewer, as loaders of pairs return it.
        loss_fn: the loss of the step.

    Raises:
        BatchError: if there is no batch, or it does not fit.
    """
    if batch is None:
        raise BatchError(
            Message("no batch to trace"),
            why=Message("the model runs on real inputs"),
            instead="devwidget.trace(model, next(iter(loader)))",
        )
    if target is not None and loss_fn is None:
        raise BatchError(
            Message("there is a target but no loss function"),
            why=Message("without a loss the step is only a forward pass, which takes no target"),
            instead="devwidget.trace(model, batch, loss_fn=torch.nn.functional.cross_entropy, target=target)",
        )
    if is_source(batch):
        batch = take_item(batch)
        batch = without_target(model, batch) if loss_fn is None else batch
    args, kwargs = _split_batch(batch)
    call = _find_callable(model)
    problem = describe_misfit(call, *args, **kwargs)
    if target is None and loss_fn is not None:
        needs_target = bool(describe_misfit(loss_fn, None))
        if _has_target(call, args, kwargs, is_needed=needs_target):
            return Arguments(args[:-1], kwargs, args[-1])
    if problem:
        name = class_name(type(model))
        raise BatchError(
            Message("the batch does not fit {name}.forward: {problem}", name=name, problem=problem),
            why=Message(
                "forward{signature} got {described}",
                signature=inspect.signature(call),
                described=_describe_arguments(args, kwargs),
            ),
            instead=Message("pass a tuple for several arguments, a dict for named ones, or devwidget.Inputs(...) for both"),
        )
    return Arguments(args, kwargs, target)


def without_target(model: nn.Module, item: Any) -> Any:
    """Return an item of a loader without its target, for a step without a loss: it has one part too many for `forward`."""
    args, kwargs = _split_batch(item)
    if _has_target(_find_callable(model), args, kwargs):
        return Inputs(*args[:-1], **kwargs)
    return item


def _has_target(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_needed: bool = False) -> bool:
    if len(args) < 2 or describe_misfit(call, *args[:-1], **kwargs):
        return False
    return is_needed or bool(describe_misfit(call, *args, **kwargs))


def cut_batch(batch: Any, target: Any, samples: int) -> tuple[Any, Any]:
    """Return a batch and its target with the first samples; a loader gives its first item.

    What is not as long as the first tensor, such as a mask for all samples or a single number, stays whole.
    """
    if is_loader(batch):
        with kept_source(batch):
            batch = take_item(batch)
    lengths = (len(tensor) for tensor in tensors_in(batch) if tensor.dim())
    whole = next(lengths, 0)

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() and len(tensor) == whole:
            return tensor[:samples]
        return tensor

    pair: tuple[Any, Any] = replace_tensors((batch, target), cut)
    return pair


def parameter_names(model: nn.Module) -> tuple[str, ...]:
    """Return the argument names of `forward`; none for a scripted or C++ forward."""
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
"""`issubclass` that calls no user code: only classes that derive from `Mapping` count."""


def _find_callable(model: nn.Module) -> Any:
    inner = model
    while any(type.__subclasscheck__(kind, type(inner)) for kind in _WRAPPERS):  # an abstract class compares and hashes classes
        inner = inner._modules["module"]  # type: ignore[assignment]
    compiled = dict(registered_entries(inner, "_modules")).get("_orig_mod")
    return (inner if compiled is None else compiled).forward


def describe_misfit(call: Any, /, *args: Any, **kwargs: Any) -> str:
    """Return why a call would not take these arguments; "" if it would, or has no signature, as scripted code and C++.

    Of a module, `forward` is asked.
    """
    if is_module(call):
        call = call.forward
    with contextlib.suppress(ValueError):
        try:
            inspect.signature(call).bind(*args, **kwargs)
        except TypeError as error:
            return message(error)
    return ""


def _describe_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    def describe_value(value: Any) -> str:
        return class_name(type(value)) + (str(list(value.shape)) if is_tensor(value) else "")

    return ", ".join(
        [*map(describe_value, args), *(f"{key}={describe_value(value)}" for key, value in kwargs.items())]
    ) or Message("nothing")
