"""Attributes and methods of tensors that tell or change where they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary

from devwidget.simulator.devices import cuda_errors, labels, moves
from devwidget.simulator.devices.labels import CPU, DEVICES, LABELS, META_DEVICE, TEMPORARY, storage_id
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.patching import Patches
from devwidget.simulator.tensor_surface import conversions, methods
from devwidget.simulator.torch_internals import TensorBase, locate_name
from devwidget.simulator.torch_surface import gradient_hooks
from devwidget.simulator.without_values import known_values

_grad = TensorBase.grad
_read_grad: Callable[[torch.Tensor], Any] = _grad.__get__


def install(patches: Patches) -> None:
    """Replace what has to know virtual devices on `torch.Tensor`."""
    tensor = torch.Tensor
    kind = SimulationState.accelerator.type
    for name, getter in {**PROPERTIES, f"is_{kind}": is_on_gpu}.items():
        patches.set(tensor, name, property(getter))
    if not SimulationState.compute:
        patches.set(tensor, "is_meta", property(is_meta))
        patches.wrap(*locate_name("printed_tensor"), contents)
        patches.set(*locate_name("validate_distributions"), False)
    patches.set(tensor, "grad", property(get_grad, set_grad, _grad.__delete__, _grad.__doc__))
    for name, wrapper in {**METHODS, kind: conversions.to_gpu}.items():
        patches.wrap(tensor, name, wrapper)
    patches.undo.add(gradient_hooks.release_hooks)
    patches.wrap(*locate_name("parse_to"), conversions.numbers_too)


def device(self: torch.Tensor) -> torch.device:
    """The virtual device."""
    try:
        label = LABELS.get(storage_id(self), CPU)
    except NotImplementedError:
        label = labels.label_of(self)
    if labels.inside.depth:
        return labels.real_device(self)
    return DEVICES[label] if label >= 0 else moves.visible_device(labels.real_device(self), label)


def is_on_gpu(self: torch.Tensor) -> bool:
    """Whether it is on a virtual GPU."""
    return labels.label_of(self) >= 0 and not labels.inside.depth


def is_cpu(self: torch.Tensor) -> bool:
    """Whether it is on the CPU."""
    return device(self).type == "cpu"


def is_meta(self: torch.Tensor) -> bool:
    """Whether the user put it on meta."""
    return device(self) == META_DEVICE


def contents(original: Callable[..., str]) -> Callable[..., str]:
    """What `repr` shows of a tensor without values."""

    @functools.wraps(original)
    def _tensor_str(self: torch.Tensor, indent: int) -> str:
        if known_values.is_unknown(self):
            return f"..., size={tuple(self.shape)}"
        return original(known_values.read_values(self), indent)

    return _tensor_str


PROPERTIES: dict[str, Callable[[torch.Tensor], Any]] = {"device": device, "is_cpu": is_cpu}


def get_grad(self: torch.Tensor) -> Any:
    """The gradient, which is where its tensor is. Optimizers read it for each parameter, so it stays short."""
    gradient = _read_grad(self)
    try:
        if gradient is not None and LABELS.get(storage_id(gradient)) == TEMPORARY:
            gradient_hooks.settle(gradient, self)
    except NotImplementedError:  # no storage: a sparse gradient
        gradient_hooks.settle(gradient, self)
    return gradient


def set_grad(self: torch.Tensor, value: Any) -> None:
    """Assign a gradient, which must be on the device of the tensor. Source: `THPVariable_set_grad`."""
    if isinstance(value, torch.Tensor):
        own, given = labels.device_of(self), labels.device_of(value)
        if own != given and labels.TEMPORARY not in (labels.label_of(self), labels.label_of(value)):
            how, part = ("located on device with index", "index") if own.type == given.type else ("with device type", "type")
            raise RuntimeError(
                f"attempting to assign a gradient {how} '{getattr(given, part)}' to a tensor {how} '{getattr(own, part)}'. "
                "Please ensure that the gradient and the tensor are on the same device"
            )
    _grad.__set__(self, value)


def get_device(original: Callable[..., int]) -> Callable[..., int]:
    """A `Tensor.get_device` that knows virtual GPUs."""

    @functools.wraps(original)
    def get_device(self: torch.Tensor) -> int:
        if has_torch_function_unary(self):
            return handle_torch_function(torch.Tensor.get_device, (self,), self)
        return max(labels.label_of(self), -1)

    return get_device


def pin_memory(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A `Tensor.pin_memory` that works without an accelerator. Source: `pin_memory` in `Memory.cpp`."""

    @functools.wraps(original)
    def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
        if has_torch_function_unary(self):
            return handle_torch_function(torch.Tensor.pin_memory, (self,), self)
        if labels.label_of(self) >= 0:
            text = cuda_errors.type_text(self.dtype, True)
            raise RuntimeError(f"cannot pin '{text}' only dense CPU tensors can be pinned")
        return self if labels.is_pinned(self) else labels.mark_pinned(self.clone())

    return pin_memory


def is_pinned(original: Callable[..., bool]) -> Callable[..., bool]:
    """A `Tensor.is_pinned` for what `pin_memory` made."""

    @functools.wraps(original)
    def is_pinned(self: torch.Tensor, device: Any = None) -> bool:
        return labels.is_pinned(self)

    return is_pinned


def record_stream(original: Callable[..., None]) -> Callable[..., None]:
    """A `Tensor.record_stream` with nothing to do: work on virtual GPUs is done when a call returns."""

    @functools.wraps(original)
    def record_stream(self: torch.Tensor, stream: Any) -> None:
        return None

    return record_stream


def share_memory_(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A `Tensor.share_memory_` that leaves GPU tensors alone."""

    @functools.wraps(original)
    def share_memory_(self: torch.Tensor) -> torch.Tensor:
        return self if labels.label_of(self) >= 0 else original(self)

    return share_memory_


METHODS: dict[str, Callable[[Any], Any]] = {
    "to": conversions.to,
    "cpu": conversions.cpu,
    "numpy": methods.numpy,
    "tolist": methods.tolist,
    "data_ptr": methods.data_ptr,
    "type": methods.type_,
    "type_as": methods.type_as,
    "copy_": methods.copy_,
    "__setitem__": methods.setitem,
    "get_device": get_device,
    "pin_memory": pin_memory,
    "is_pinned": is_pinned,
    "record_stream": record_stream,
    "share_memory_": share_memory_,
    "register_hook": gradient_hooks.check_hooks,
}
