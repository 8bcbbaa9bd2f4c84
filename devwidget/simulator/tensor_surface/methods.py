"""Methods of tensors that leave torch, name types, or write into other tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import torch
from torch.overrides import handle_torch_function, has_torch_function, has_torch_function_unary

from devwidget.capture.object_fields import is_exactly
from devwidget.simulator.devices import cuda_errors, labels, machine, moves
from devwidget.simulator.devices.labels import CPU
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.tensor_surface import conversions
from devwidget.simulator.without_values import known_values


def numpy(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `Tensor.numpy` that refuses tensors on a GPU. Source: `tensor_numpy.cpp`."""

    @functools.wraps(original)
    def numpy(self: torch.Tensor, *, force: bool = False) -> Any:
        if has_torch_function_unary(self):
            return handle_torch_function(torch.Tensor.numpy, (self,), self, force=force)
        label = labels.label_of(self)
        if label >= 0 and not force:
            raise TypeError(
                f"can't convert {labels.name_of(label)} device type tensor to numpy. Use Tensor.cpu() to "
                "copy the tensor to host memory first."
            )
        if known_values.is_unknown(self):
            raise cuda_errors.needs_values("`Tensor.numpy`")
        return original(known_values.read_values(self.detach().cpu() if label >= 0 else self), force=force)

    return numpy


def type_(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `Tensor.type` that speaks of `torch.cuda.FloatTensor`."""

    @functools.wraps(original)
    def type(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        if has_torch_function_unary(self):
            return handle_torch_function(cast(Any, torch.Tensor.type), (self,), self, dtype, non_blocking, **kwargs)
        if dtype is None:
            on_gpu = labels.label_of(self) >= 0
            if not SimulationState.compute:
                return cuda_errors.type_text(self.dtype, on_gpu)
            name = original(self)  # sparse ones have names of their own
            return name.replace("torch.", f"torch.{SimulationState.accelerator.type}.", 1) if on_gpu else name
        if isinstance(dtype, torch.dtype):
            return original(self, dtype, non_blocking, **kwargs)
        name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
        own = f"torch.{SimulationState.accelerator.type}."
        label = machine.current_index() if name.startswith(own) else CPU
        wanted = torch.zeros(0).type(name.replace(own, "torch.")).dtype if label >= 0 else original(torch.zeros(0), dtype).dtype
        return self.to(labels.DEVICES[label] if label >= 0 else labels.CPU_DEVICE, wanted, non_blocking)

    return type


def type_as(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `Tensor.type_as` that also moves."""

    @functools.wraps(original)
    def type_as(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        if has_torch_function((self, other)):
            return handle_torch_function(torch.Tensor.type_as, (self, other), self, other)
        if labels.inside.depth:
            real: torch.Tensor = original(self, other)
            return real
        return conversions.to_like(conversions.original_to, self, other, (), {})

    return type_as


def copy_(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A `Tensor.copy_` whose gradient finds its way back to another device."""

    @functools.wraps(original)
    def copy_(self: torch.Tensor, src: Any, non_blocking: bool = False) -> torch.Tensor:
        if has_torch_function((self, src)):
            return handle_torch_function(torch.Tensor.copy_, (self, src), self, src, non_blocking)
        return original(self, beside(self, src), non_blocking)

    return copy_


def setitem(original: Callable[..., None]) -> Callable[..., None]:
    """A `Tensor.__setitem__` whose gradient finds its way back to another device."""

    @functools.wraps(original)
    def __setitem__(self: torch.Tensor, key: Any, value: Any) -> None:
        if has_torch_function((self, value)):
            return handle_torch_function(torch.Tensor.__setitem__, (self, value), self, key, value)
        if is_exactly(value, (bool, int, float, complex)) and _is_indexed_from_elsewhere(self, key):
            value = torch.tensor(value, dtype=self.dtype)
        return original(self, key, beside(self, value))

    return __setitem__


def _is_indexed_from_elsewhere(tensor: torch.Tensor, key: Any) -> bool:
    """True where C++ must not take the one device it sees for that of both: torch 2.15 then fills with `index_fill_`."""
    label = labels.label_of(tensor)
    parts = key if isinstance(key, tuple) else (key,)
    return any(
        labels.label_of(part) != label if isinstance(part, torch.Tensor) else isinstance(part, list) and label >= 0
        for part in parts
    )


def beside(tensor: torch.Tensor, value: Any) -> Any:
    """`value`, moved to where `tensor` is if its gradient has to come back from there."""
    if isinstance(value, torch.Tensor) and value.requires_grad and torch.is_grad_enabled():
        own = labels.label_of(tensor)
        if own >= CPU and own != labels.TEMPORARY and labels.label_of(value) != own:
            return moves.move_tensor(value, own)
    return value


def data_ptr(original: Callable[..., int]) -> Callable[..., int]:
    """A `Tensor.data_ptr` by which programs tell tensors apart, also those without values, which all begin at 0."""

    @functools.wraps(original)
    def data_ptr(self: torch.Tensor) -> int:
        if has_torch_function_unary(self):
            return handle_torch_function(torch.Tensor.data_ptr, (self,), self)
        if SimulationState.compute or labels.real_device(self) != labels.META_DEVICE or not self.numel():
            return original(self)
        return labels.storage_id(self) + int(self.storage_offset()) * self.element_size()

    return data_ptr


def tolist(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `Tensor.tolist` that says why there is nothing to list."""

    @functools.wraps(original)
    def tolist(self: torch.Tensor) -> Any:
        if has_torch_function_unary(self):
            return handle_torch_function(torch.Tensor.tolist, (self,), self)
        if known_values.is_unknown(self):
            raise cuda_errors.needs_values("`Tensor.tolist`")
        return original(known_values.read_values(self))

    return tolist
