"""State of tensors: storage, shape, dtype, gradient, hooks. Values are saved with the storages."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import find_class_attribute
from devwidget.capture.restore.keepers import Keeper, Kept, NotRestored, Undoing
from devwidget.records.schema.message import Message

Read = Callable[[Any], Any]
_BASE: Any = torch_internals.TensorBase
_own = {name: member.__get__ for name, member in vars(_BASE).items() if hasattr(member, "__get__")}
"""Properties that skip `__torch_function__`, subclasses and simulations."""
storage_id: Read = torch_internals.storage_id
_set_class = vars(object)["__class__"].__set__
_namespace: Read = vars(torch.Tensor)["__dict__"].__get__
_NO_DISPATCH = vars(torch.Tensor)["__torch_dispatch__"]
_SIGNATURE: tuple[Read, ...] = (storage_id, _own["shape"], _BASE.stride, _BASE.storage_offset, _own["dtype"])
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


class TensorState(NamedTuple):
    """All that may change about a tensor except its values.

    Attributes:
        alias: another tensor over the same storage, which keeps shape, strides and dtype; None if it has none.
        signature: storage, shape, strides, offset and dtype.
        version: how often it had been written; None for tensors without a counter.
        history: its autograd node; None for a leaf.
        namespace: attributes that the user set on it; `is_bare` if there were none.
    """

    kind: type
    alias: Any
    signature: tuple[Any, ...]
    version: Any
    requires_grad: bool
    history: Any
    gradient: Any
    hooks: tuple[Any, ...]
    namespace: dict[str, Any]
    is_bare: bool


def _or_none(read: Read, tensor: Any) -> Any:
    try:
        return read(tensor)
    except Exception:  # sparse tensors have no storage, nested ones no shape, inference tensors no version
        return None


def read_version(tensor: Any) -> Any:
    """Return how often a tensor has been written; None for tensors without a counter."""
    return _or_none(_own["_version"], tensor)


def is_wrapper(kind: type) -> bool:
    """Return whether tensors of a class pass every operator on to tensors in their fields."""
    if kind is torch.Tensor or kind is torch.nn.Parameter:  # nearly all are
        return False
    return find_class_attribute(kind, "__torch_dispatch__") is not _NO_DISPATCH


def _read_state(tensor: Any) -> TensorState:
    shown = None if is_wrapper(type(tensor)) else tensor
    namespace = _namespace(tensor)
    return TensorState(
        type(tensor),
        _or_none(_BASE.detach, shown),
        _read_signature(shown),
        read_version(tensor),
        _own["requires_grad"](tensor),
        _own["grad_fn"](tensor),
        _read_gradient(tensor),
        tuple(_own[name](tensor) for name in _HOOKS),
        namespace,
        not namespace,
    )


def _read_signature(tensor: Any) -> tuple[Any, ...]:
    try:
        return tuple([read(tensor) for read in _SIGNATURE])
    except Exception:
        return tuple([_or_none(read, tensor) for read in _SIGNATURE])


def _read_gradient(tensor: Any) -> Any:
    """Return the gradient. Reading it on a result that keeps none would raise a warning."""
    if _own["is_leaf"](tensor) or _own["retains_grad"](tensor):
        return _own["grad"](tensor)
    return None


def _same_but_gradient(now: TensorState, before: TensorState) -> bool:
    if now.kind is not before.kind or now.requires_grad is not before.requires_grad or now.history is not before.history:
        return False
    if any(map(operator.is_not, now.hooks, before.hooks)) or (before.is_bare and not now.is_bare):
        return False
    alias = before.alias
    if alias is not None and (_own["layout"](alias) is not torch.strided or _own["is_nested"](alias)):
        return False  # its parts may have changed although its signature is the same
    return now.signature == before.signature


def _same_state(now: TensorState, before: TensorState) -> bool:
    return now.gradient is before.gradient and _same_but_gradient(now, before)


def has_changed(kept: Kept) -> bool:
    """Return whether a tensor has changed, except its gradient and its values."""
    return not _same_but_gradient(_read_state(kept.owner), kept.before)


def _list_parts(before: TensorState) -> Iterable[Any]:
    """Return the gradient, hooks, and attributes that the user set on the tensor."""
    return before.gradient, before.namespace, *before.hooks


def _write_state(tensor: Any, before: TensorState) -> None:
    if type(tensor) is not before.kind:
        _set_class(tensor, before.kind)
    if before.alias is not None:
        vars(_BASE)["data"].__set__(tensor, before.alias)
    _write_history(tensor, before)
    if _read_gradient(tensor) is not before.gradient:
        vars(_BASE)["grad"].__set__(tensor, before.gradient)
    if before.is_bare:
        before.namespace.clear()
    for name, value in zip(_HOOKS, before.hooks, strict=True):
        if _own[name](tensor) is not value:
            vars(_BASE)[name].__set__(tensor, value)


def _write_history(tensor: Any, before: TensorState) -> None:
    """Make a tensor a leaf again after a write made it the result of an operation.

    Raises:
        NotRestored: if it was a result before, and is another one now.
    """
    now = _own["grad_fn"](tensor)
    if before.history is not None:
        if now is not before.history:
            raise NotRestored(Message("it belongs to another graph now"))
        return
    if now is not None:
        _BASE.detach_(tensor)
    if _own["requires_grad"](tensor) is not before.requires_grad:
        vars(_BASE)["requires_grad"].__set__(tensor, before.requires_grad)


TENSOR = Keeper(_read_state, _write_state, _same_state, _list_parts)
"""A tensor, except its values."""


def put_versions_back(tensors: list[Kept], undoing: Undoing) -> None:
    """Reset versions: a tensor with its old values counts as unwritten, so graphs that saved it can still run backward."""
    if torch_internals.set_versions is None:
        return
    lost = {id(owner) for owner, _ in undoing.lost}
    for kept in tensors:
        version, now = kept.before.version, read_version(kept.owner)
        if version != now and None not in (version, now) and id(kept.owner) not in lost:
            torch_internals.set_versions((kept.owner,), (version,))
