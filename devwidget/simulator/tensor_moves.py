"""`Tensor.to`, `.cuda`, `.cpu` and their kin, for virtual devices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import torch
from torch.overrides import handle_torch_function, has_torch_function, has_torch_function_unary

from devwidget.simulator import failures, labels, machine, moves
from devwidget.simulator.labels import CPU, DEVICES, META

parse_to: Any = torch._C._nn._parse_to


def label_of_device(device: Any) -> int:
    """The label of anything that names a device; an integer is a GPU.

    Raises:
        torch.AcceleratorError: if there is no such GPU.
    """
    if isinstance(device, int):
        return machine.checked(device)
    if isinstance(device, str):
        device = torch.device(device)
    if device.type == "cuda":
        return machine.ordinal(device)
    return META if device.type == "meta" else CPU


def as_device(device: Any) -> Any:
    """The same device, an integer being a GPU."""
    return DEVICES[device] if isinstance(device, int) and not isinstance(device, bool) else device


def numbers_too(original: Callable[..., Any]) -> Callable[..., Any]:
    """A parser of the arguments of `.to` for which a number is a GPU; `Module.to` asks it."""

    @functools.wraps(original)
    def _parse_to(*args: Any, **kwargs: Any) -> Any:
        args = (as_device(args[0]), *args[1:]) if args else ()
        return original(*args, **{name: as_device(value) if name == "device" else value for name, value in kwargs.items()})

    return _parse_to


def to(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A `Tensor.to` that knows virtual devices."""

    @functools.wraps(original)
    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if has_torch_function((self, *args)):
            return handle_torch_function(torch.Tensor.to, (self, *args), self, *args, **kwargs)
        if labels.inside.depth:
            return original(self, *args, **kwargs)
        other: Any = args[0] if args else kwargs.get("other")
        if isinstance(other, torch.Tensor):
            return _to_like(original, self, other, args, kwargs)
        if args and isinstance(args[0], int):
            args = (as_device(args[0]), *args[1:])
        elif isinstance(kwargs.get("device"), int):
            kwargs["device"] = as_device(kwargs["device"])
        copy = kwargs.pop("copy", False)
        most = 2 if args and isinstance(args[0], torch.dtype) else 3
        if len(args) > most:  # copy came by position
            args, copy = args[:most], args[most]
        device, dtype, non_blocking, memory_format = parse_to(*args, **kwargs)
        if device is None:
            kwargs = {} if memory_format is None else {"memory_format": memory_format}
            return original(self, dtype or self.dtype, non_blocking, copy, **kwargs)
        return _to_device(original, self, label_of_device(device), dtype, non_blocking, copy, memory_format)

    return to


def _to_like(original: Any, self: torch.Tensor, other: torch.Tensor, args: Any, kwargs: Any) -> torch.Tensor:
    rest = (*args[1:], *(kwargs[name] for name in ("non_blocking", "copy") if name in kwargs))
    non_blocking, copy = (*rest, False, False)[:2]
    return _to_device(original, self, moves.own_label(other), other.dtype, non_blocking, copy, kwargs.get("memory_format"))


def _to_device(
    original: Any,
    self: torch.Tensor,
    label: int,
    dtype: torch.dtype | None,
    non_blocking: bool,
    copy: bool,
    memory_format: torch.memory_format | None,
) -> torch.Tensor:
    options: dict[str, Any] = {} if memory_format is None else {"memory_format": memory_format}
    if moves.own_label(self) == label:
        same: torch.Tensor = original(self, dtype or self.dtype, non_blocking, copy, **options)
        return same
    options["dtype"] = dtype
    if non_blocking:
        options["non_blocking"] = True
    return moves.move(self, label, options)


def cuda(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A `Tensor.cuda` that moves to a virtual GPU."""

    @functools.wraps(original)
    def cuda(
        self: torch.Tensor,
        device: Any = None,
        non_blocking: bool = False,
        memory_format: torch.memory_format = torch.preserve_format,
    ) -> torch.Tensor:
        if has_torch_function_unary(self):
            given = {"non_blocking": non_blocking} if non_blocking else {}
            return handle_torch_function(torch.Tensor.cuda, (self,), self, device, memory_format=memory_format, **given)
        label = machine.current_index() if device is None else label_of_device(device)
        if label < 0:
            raise RuntimeError(f"Invalid device, must be cuda device, but got {device}")
        return _to_device(original_to, self, label, None, non_blocking, False, memory_format)

    return cuda


def cpu(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A `Tensor.cpu` that moves off a virtual GPU."""

    @functools.wraps(original)
    def cpu(self: torch.Tensor, memory_format: torch.memory_format = torch.preserve_format) -> torch.Tensor:
        if has_torch_function_unary(self):
            return handle_torch_function(torch.Tensor.cpu, (self,), self, memory_format=memory_format)
        if labels.inside.depth:
            return original(self, memory_format=memory_format)
        return _to_device(original_to, self, CPU, None, False, False, memory_format)

    return cpu


original_to = torch._C.TensorBase.to


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
        if not labels.Books.compute and labels.real_device(self).type == "meta":
            raise failures.needs_values("`Tensor.numpy`")
        return original(self.detach().cpu() if label >= 0 else self, force=force)

    return numpy


def type_(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `Tensor.type` that speaks of `torch.cuda.FloatTensor`."""

    @functools.wraps(original)
    def type(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        if has_torch_function_unary(self):
            return handle_torch_function(cast(Any, torch.Tensor.type), (self,), self, dtype, non_blocking, **kwargs)
        if dtype is None:
            return failures.type_text(self.dtype, labels.label_of(self) >= 0)
        if isinstance(dtype, torch.dtype):
            return original(self, dtype, non_blocking, **kwargs)
        name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
        label = machine.current_index() if name.startswith("torch.cuda.") else CPU
        wanted = torch.zeros(0).type(name.replace("torch.cuda.", "torch.")).dtype if label >= 0 else original(
            torch.zeros(0), dtype
        ).dtype
        return self.to(labels.DEVICES[label] if label >= 0 else labels.CPU_DEVICE, wanted, non_blocking)

    return type


def type_as(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `Tensor.type_as` that also moves."""

    @functools.wraps(original)
    def type_as(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        if has_torch_function((self, other)):
            return handle_torch_function(torch.Tensor.type_as, (self, other), self, other)
        if labels.inside.depth:
            return original(self, other)
        return _to_like(original_to, self, other, (), {})

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
        return original(self, key, beside(self, value))

    return __setitem__


def beside(tensor: torch.Tensor, value: Any) -> Any:
    """`value`, moved to where `tensor` is if its gradient has to come back from there."""
    if isinstance(value, torch.Tensor) and value.requires_grad and torch.is_grad_enabled():
        own = labels.label_of(tensor)
        if own >= CPU and own != labels.TEMPORARY and labels.label_of(value) != own:
            return moves.move(value, own)
    return value


def tolist(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `Tensor.tolist` that says why there is nothing to list."""

    @functools.wraps(original)
    def tolist(self: torch.Tensor) -> Any:
        if has_torch_function_unary(self):
            return handle_torch_function(torch.Tensor.tolist, (self,), self)
        if not labels.Books.compute and labels.real_device(self).type == "meta":
            raise failures.needs_values("`Tensor.tolist`")
        return original(self)

    return tolist
