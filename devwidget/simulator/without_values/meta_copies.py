"""A model or a batch again, on virtual GPUs and without values; the original is only read."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from devwidget.capture.modules import all_tensors, own, walk_modules
from devwidget.capture.tensors import tensors_in
from devwidget.records.errors import DevwidgetError, message
from devwidget.records.schema.message import Message
from devwidget.simulator.devices.labels import real_device
from devwidget.simulator.torch_internals import DisableTorchFunction
from devwidget.simulator.without_values.known_values import is_small, keep_storage, keep_values

Where = Callable[[torch.Tensor], torch.device]


class MetaCopies:
    """Makes tensors without values; what shares a storage shares it again, unless it has to be moved, as `.to` does.

    Args:
        where: the device on which the copy of a tensor is to be.
        dtype: of copies of floating numbers; None for that of the tensor.
    """

    def __init__(self, where: Where, dtype: torch.dtype | None = None) -> None:
        self._where, self._dtype = where, dtype
        self._bases: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def copy_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """The copy of one tensor; if it is small and no parameter, its values are known."""
        device = self._where(tensor)
        if tensor.layout != torch.strided:
            return tensor.detach().to(device, copy=True)
        dtype = self._dtype if self._dtype is not None and tensor.is_floating_point() else tensor.dtype
        if tensor.device == device and dtype == tensor.dtype:
            return self._share_storage(tensor)
        copied = torch.empty_like(tensor, device=device, dtype=dtype)
        if _is_knowable(tensor) and is_small(tensor):
            keep_values(copied, tensor)
        return copied

    def _share_storage(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        # An address would be 0 for all that is on meta.
        key = storage._cdata, tensor.dtype
        if key not in self._bases:
            base = torch.empty(storage.nbytes() // tensor.element_size(), dtype=tensor.dtype, device=tensor.device)
            if _is_knowable(tensor):
                keep_storage(base, storage)
            self._bases[key] = base
        return self._bases[key].as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _is_knowable(tensor: torch.Tensor) -> bool:
    # A mode of ours would answer with the device that the user sees: the cpu.
    with DisableTorchFunction():
        has_values = real_device(tensor).type != "meta"
    return has_values and not (tensor.requires_grad or isinstance(tensor, nn.Parameter))


def meta_copy_of_model(
    model: nn.Module, where_registered: Where, where_plain: Where, dtype: torch.dtype | None = None
) -> nn.Module:
    """A copy of a model whose tensors have no values and no gradients.

    Args:
        model: is only read.
        where_registered: device for the copy of a parameter or buffer.
        where_plain: device for the copy of a tensor in a plain attribute.
        dtype: of registered floating numbers; None for those that they have.

    Raises:
        DevwidgetError: for a model with lazy parameters, or one that cannot be copied.
    """
    memo: dict[int, Any] = {}
    registered = MetaCopies(where_registered, dtype)
    for tensor in all_tensors(model):
        _refuse_lazy(tensor)
        memo[id(tensor)] = _wrap_like(tensor, registered.copy_tensor(tensor))
    plain = MetaCopies(where_plain)
    for tensor in _plain_tensors(model):
        if id(tensor) not in memo:
            memo[id(tensor)] = _wrap_like(tensor, plain.copy_tensor(tensor))
    try:
        return copy.deepcopy(model, memo)
    except (TypeError, RuntimeError) as error:
        fails = Message("{kind} cannot be copied: {error}", kind=type(model).__name__, error=message(error))
        raise DevwidgetError(fails, why=Message("the plan runs on a copy")) from error


def _plain_tensors(model: nn.Module) -> Iterator[torch.Tensor]:
    for _, module in walk_modules(model):
        yield from tensors_in([value for key, value in own(module).items() if key not in ("_parameters", "_buffers")])


def _refuse_lazy(tensor: torch.Tensor) -> None:
    if is_lazy(tensor):
        raise DevwidgetError(Message("a lazy parameter has no shape yet"), instead=Message("run the model once, then plan"))


def _wrap_like(tensor: torch.Tensor, copied: torch.Tensor) -> torch.Tensor:
    """A parameter for a parameter, with the attributes that programs hang on it."""
    if isinstance(tensor, nn.Parameter):
        copied = nn.Parameter(copied, requires_grad=tensor.requires_grad)
    elif tensor.requires_grad:
        copied = copied.requires_grad_()
    copied.__dict__.update(tensor.__dict__)
    return copied
