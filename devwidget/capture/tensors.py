"""Find and read tensors inside arguments and results, without running user code."""

from __future__ import annotations

import functools
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import (
    SCALAR_IDS,
    dict_of,
    fields_of,
    find_class_attribute,
    is_among,
    module_name,
    parts_of,
)

if TYPE_CHECKING:
    from typing_extensions import TypeIs

DEEPEST = 6
_Tensor, _Parameter = torch.Tensor, nn.Parameter
DEVICE = torch.device
"""The class itself. Virtual GPUs replace it while they run."""


def is_tensor(value: object) -> TypeIs[torch.Tensor]:
    """Return True for tensors of every class."""
    kind = type(value)
    return kind is _Tensor or kind is _Parameter or issubclass(kind, _Tensor)


def is_parameter(value: object) -> TypeIs[nn.Parameter]:
    """Return True for parameters, and for tensors of other classes that `nn.Parameter(...)` made one."""
    kind = type(value)
    if kind is _Parameter:  # the question of a class costs a microsecond: parameters have a metaclass
        return True
    if kind is _Tensor or not issubclass(kind, _Tensor):
        return False
    return issubclass(kind, _Parameter) or dict_of(value).get("_is_param") is True


def read_attribute(tensor: torch.Tensor, name: str) -> Any:
    """Return an attribute as `torch.Tensor` has it, whatever its own class or a mode of the user would return."""
    with torch_internals.DisableTorchFunction():
        return getattr(torch.Tensor, name).__get__(tensor)


node_of: Callable[[torch.Tensor], Any] = torch_internals.TensorBase.grad_fn.__get__
"""Returns the autograd node behind a tensor. Virtual GPUs have their own `grad_fn`, which prepares each node for hooks."""


def nodes_behind(nodes: Iterable[Any], is_last: Callable[[Any], bool] = lambda node: False) -> Iterator[Any]:
    """Yield some nodes of autograd's graph and the nodes behind them, each once, and none behind the last ones."""
    seen = {None}  # holds the nodes, whose ids would be used again
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            yield node
            if not is_last(node):
                waiting += [before for before, _ in node.next_functions]


def device_of(tensor: torch.Tensor) -> torch.device:
    """Return the device of a tensor, as `read_attribute`."""
    device: torch.device = read_attribute(tensor, "device")
    return device


_IS_NESTED, _SHAPE = torch_internals.TensorBase.is_nested.__get__, torch_internals.TensorBase.shape.__get__


def shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the shape, as `read_attribute`; () for a nested tensor, which has none."""
    with torch_internals.DisableTorchFunction():  # once for both: a recording asks for each operator and each call
        if _IS_NESTED(tensor):
            return ()
        return tuple(map(int, _SHAPE(tensor)))


def gradient_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the gradient of a leaf. Reading it on others raises a warning."""
    if is_leaf(tensor):
        return tensor.grad
    return None


def is_leaf(tensor: torch.Tensor) -> bool:
    """Return torch's `is_leaf`; False where that raises: for a view whose base was changed in place, as FSDP1 and broadcasts
    keep.
    """
    try:
        return tensor.is_leaf
    except RuntimeError:
        return False


def viewed_base(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensor that another is a view of; () if it is not a view."""
    base = read_attribute(tensor, "_base")
    if is_tensor(base):
        return (base,)
    return ()


def wrapped_tensor(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor that another wraps under `torch.func`; None for a plain one."""
    found = None
    while torch_internals.is_functorch_wrapped(tensor):
        found = tensor = torch_internals.get_unwrapped(tensor)
    return found


def sparse_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the dense tensors of a sparse one; () for all others."""
    base = torch_internals.TensorBase
    match read_attribute(tensor, "layout"):
        case torch.sparse_coo:
            return base._indices(tensor), base._values(tensor)
        case torch.sparse_csr | torch.sparse_bsr:
            return base.crow_indices(tensor), base.col_indices(tensor), base.values(tensor)
        case torch.sparse_csc | torch.sparse_bsc:
            return base.ccol_indices(tensor), base.row_indices(tensor), base.values(tensor)
    return ()


def tensors_in(value: Any, depth: int = DEEPEST) -> Iterator[torch.Tensor]:
    """Yield tensors in nested containers (a HuggingFace output is a dict, a batch of its tokenizers a `UserDict`)."""
    kind = type(value)
    if kind is _Tensor or kind is _Parameter or issubclass(kind, _Tensor):
        yield value
    elif depth and id(kind) not in SCALAR_IDS:
        for part in value if kind is tuple or kind is list else parts_of(value):
            kind = type(part)
            if kind is _Tensor or kind is _Parameter:  # nearly all parts are these or numbers: no generator for each
                yield part
            elif id(kind) not in SCALAR_IDS:
                yield from tensors_in(part, depth - 1)


def replace_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor], around: tuple[Any, ...] = ()) -> Any:
    """Return a copy of nested containers in which every tensor is changed, data classes and other container classes included.

    Objects without a changed tensor stay the same object.
    """
    if is_tensor(value):
        return change(value)
    before = list(parts_of(value))
    if not before or is_among(value, around):
        return value
    again = functools.partial(replace_tensors, change=change, around=(*around, value))
    after = [again(part) for part in before]
    if all(map(operator.is_, after, before)):
        return value
    if module_name(type(value)) == "torch.return_types":
        return type(value)(after)
    return _copy_with_parts(value, after, again)


def _copy_with_parts(value: Any, parts: list[Any], change: Callable[[Any], Any]) -> Any:
    """Return a container with other parts, created and filled by Python's own methods."""
    kind = type(value)
    base: Any = next(each for each in (OrderedDict, dict, list, tuple, object) if issubclass(kind, each))
    made = base.__new__(kind, *([parts] if base is tuple else ()))
    if base is list:
        list.extend(made, parts)
    for key, part in zip(dict.keys(value), parts, strict=True) if issubclass(kind, dict) else ():
        base.__setitem__(made, key, part)
    for name, part in fields_of(value):
        slot = find_class_attribute(kind, name)
        if type(slot) is MemberDescriptorType:
            slot.__set__(made, change(part))
        else:
            dict_of(made)[name] = change(part)
    return made
