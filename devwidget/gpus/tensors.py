"""Attributes and methods of tensors that tell or change where they are, leave torch, name types or write into others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch.overrides import handle_torch_function, has_torch_function, has_torch_function_unary

from devwidget.capture.object_fields import is_exactly
from devwidget.gpus import conversions, labels, machine, moves
from devwidget.gpus import errors as cuda_errors
from devwidget.gpus import gradients as gradient_hooks
from devwidget.gpus.labels import CPU, DEVICES, LABELS, TEMPORARY, inside, storage_id
from devwidget.gpus.patching import Patches, replacing
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.torch_internals import TensorBase, functorch, locate_name


@replacing
def wrap_numpy(original: Callable[..., Any], self: torch.Tensor, *, force: bool = False) -> Any:
    """A `Tensor.numpy` that refuses tensors on a GPU. Source: `tensor_numpy.cpp`."""
    if has_torch_function_unary(self):
        return handle_torch_function(torch.Tensor.numpy, (self,), self, force=force)
    label = labels.label_of(self)
    if label >= 0 and not force:
        raise TypeError(
            f"can't convert {labels.name_of(label)} device type tensor to numpy. Use Tensor.cpu() to "
            "copy the tensor to host memory first."
        )
    SimulationState.values.check_known(self, "`Tensor.numpy`")
    return original(SimulationState.values.read_values(self.detach().cpu() if label >= 0 else self), force=force)


@replacing
def wrap_type(
    original: Callable[..., Any], self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any
) -> Any:
    """A `Tensor.type` that speaks of `torch.cuda.FloatTensor`."""
    if has_torch_function_unary(self):
        return handle_torch_function(cast(Any, torch.Tensor.type), (self,), self, dtype, non_blocking, **kwargs)
    if dtype is None:
        on_gpu = labels.label_of(self) >= 0
        if not SimulationState.compute:
            return cuda_errors.type_text(self.dtype, on_gpu)
        # Sparse ones have names of their own.
        name = original(self)
        return name.replace("torch.", "torch.cuda.", 1) if on_gpu else name
    if isinstance(dtype, torch.dtype):
        return original(self, dtype, non_blocking, **kwargs)
    name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
    gpu_types = "torch.cuda."
    wanted = original(torch.zeros(0), name.replace(gpu_types, "torch.", 1)).dtype
    return self.to(_device_of_type(self, is_gpu_type=name.startswith(gpu_types)), wanted, non_blocking)


def _device_of_type(tensor: torch.Tensor, *, is_gpu_type: bool) -> torch.device:
    """Where `Tensor.type` puts a tensor: it stays on the GPU that it is on. Source: `THPVariable_type`."""
    if not is_gpu_type:
        return labels.CPU_DEVICE
    label = labels.label_of(tensor)
    return labels.DEVICES[label if label >= 0 else machine.current_index()]


@replacing
def wrap_type_as(original: Callable[..., Any], self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """A `Tensor.type_as` that also moves."""
    if has_torch_function((self, other)):
        return handle_torch_function(torch.Tensor.type_as, (self, other), self, other)
    if labels.inside.depth:
        real: torch.Tensor = original(self, other)
        return real
    return conversions.convert_like(conversions.original_to, self, other, (), {})


@replacing
def wrap_copy_(original: Callable[..., torch.Tensor], self: torch.Tensor, src: Any, non_blocking: bool = False) -> torch.Tensor:
    """A `Tensor.copy_` whose gradient finds its way back to another device."""
    if has_torch_function((self, src)):
        return handle_torch_function(torch.Tensor.copy_, (self, src), self, src, non_blocking)
    return original(self, place_like(self, src), non_blocking)


@replacing
def wrap_setitem(original: Callable[..., None], self: torch.Tensor, key: Any, value: Any) -> None:
    """A `Tensor.__setitem__` whose gradient finds its way back to another device."""
    if has_torch_function((self, value)):
        # C++ hands the call over before it looks at anything, with `torch.Tensor.__setitem__` for the function, which is this.
        return original(self, key, value)
    if is_exactly(value, (bool, int, float, complex)):
        if functorch.peek_interpreter_stack() is not None and (label := labels.label_of(self)) >= 0:
            # `vmap` makes one for each sample of it, which is no single number any more, and would be one of the CPU.
            value = torch.tensor(value, dtype=self.dtype, device=DEVICES[label])
        elif _is_indexed_from_elsewhere(self, key):
            value = torch.tensor(value, dtype=self.dtype)
    if not _is_copied(key, value):
        return original(self, key, value)
    return original(self, key, place_like(self, value))


def _is_copied(key: Any, value: Any) -> bool:
    """True where a value from another device is copied. What tensors index is put there by a kernel of one device.

    Source: `THPVariable_setitem`, and `canDispatchToMaskedFill` for a single number of the CPU.
    """
    parts = key if isinstance(key, tuple) else (key,)
    if not any(map(_is_tensor_index, parts)):
        return True
    return isinstance(value, torch.Tensor) and value.numel() == 1 and labels.label_of(value) == CPU


def _is_tensor_index(part: Any) -> bool:
    """True for what C++ makes a tensor of indices; an integer in a tensor without dimensions is one index."""
    if isinstance(part, torch.Tensor):
        return part.dim() > 0 or part.dtype in (torch.bool, torch.uint8)
    return isinstance(part, list) or getattr(part, "ndim", 0) > 0  # a list, or an array of numpy


def _is_indexed_from_elsewhere(tensor: torch.Tensor, key: Any) -> bool:
    """True where C++ must not take the one device it sees for that of both: torch 2.15 then fills with `index_fill_`."""
    label = labels.label_of(tensor)
    parts = key if isinstance(key, tuple) else (key,)
    return any(
        labels.label_of(part) != label if isinstance(part, torch.Tensor) else isinstance(part, list) and label >= 0
        for part in parts
    )


def place_like(tensor: torch.Tensor, value: Any) -> Any:
    """`value`, moved to where `tensor` is if its gradient has to come back from there."""
    if isinstance(value, torch.Tensor) and value.requires_grad and torch.is_grad_enabled():
        own = labels.label_of(tensor)
        if own >= CPU and own != labels.TEMPORARY and labels.label_of(value) != own:
            return moves.move_tensor(value, own)
    return value


@replacing
def wrap_data_ptr(original: Callable[..., int], self: torch.Tensor) -> int:
    """A `Tensor.data_ptr` by which programs tell tensors apart, also those without values, which all begin at 0."""
    if has_torch_function_unary(self):
        return handle_torch_function(torch.Tensor.data_ptr, (self,), self)
    if SimulationState.compute or labels.real_device(self) != labels.META_DEVICE or not self.numel():
        return original(self)
    return labels.storage_id(self) + int(self.storage_offset()) * self.element_size()


@replacing
def wrap_tolist(original: Callable[..., Any], self: torch.Tensor) -> Any:
    """A `Tensor.tolist` that says why there is nothing to list."""
    if has_torch_function_unary(self):
        return handle_torch_function(torch.Tensor.tolist, (self,), self)
    SimulationState.values.check_known(self, "`Tensor.tolist`")
    return original(SimulationState.values.read_values(self))


_grad = TensorBase.grad
_read_grad: Callable[[torch.Tensor], Any] = _grad.__get__


def install(patches: Patches) -> None:
    """Replace what has to know virtual devices on `torch.Tensor`."""
    tensor = torch.Tensor
    for name, getter in {**PROPERTIES, "is_cuda": is_on_gpu}.items():
        patches.set(tensor, name, property(getter))
    patches.set(tensor, "grad", property(get_grad, set_grad, _grad.__delete__, _grad.__doc__))
    for name, wrapper in {**METHODS, "cuda": conversions.wrap_to_gpu}.items():
        patches.wrap(tensor, name, wrapper)
    patches.undo.add_step(gradient_hooks.release_hooks)
    patches.wrap(*locate_name("parse_to"), conversions.accept_numbers)


def get_device_property(self: torch.Tensor) -> torch.device:
    """The virtual device."""
    try:
        label = LABELS.get(storage_id(self), CPU)
    except NotImplementedError:
        label = labels.label_of(self)
    if label >= 0 and not inside.depth:  # as nearly always while a recording asks for the devices of all operands
        return DEVICES[label]
    if inside.depth:
        return labels.real_device(self)
    if label == CPU and not labels.is_plain(self) and (label := labels.label_of(self)) >= 0:
        return DEVICES[label]
    real = labels.real_device(self)
    return moves.visible_device(real, label)


def is_on_gpu(self: torch.Tensor) -> bool:
    """Whether it is on a virtual GPU."""
    return labels.label_of(self) >= 0 and not labels.inside.depth


def is_cpu(self: torch.Tensor) -> bool:
    """Whether it is on the CPU."""
    return get_device_property(self).type == "cpu"


PROPERTIES: dict[str, Callable[[torch.Tensor], Any]] = {"device": get_device_property, "is_cpu": is_cpu}


def get_grad(self: torch.Tensor) -> Any:
    """The gradient, which is where its tensor is. Optimizers read it for each parameter, so it stays short."""
    gradient = _read_grad(self)
    try:
        if gradient is not None and LABELS.get(storage_id(gradient)) == TEMPORARY:
            gradient_hooks.settle_gradient(gradient, self)
    except NotImplementedError:
        # No storage: a sparse gradient.
        gradient_hooks.settle_gradient(gradient, self)
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


@replacing
def get_device(original: Callable[..., int], self: torch.Tensor) -> int:
    """A `Tensor.get_device` that knows virtual GPUs."""
    if has_torch_function_unary(self):
        return handle_torch_function(torch.Tensor.get_device, (self,), self)
    return max(labels.label_of(self), -1)


@replacing
def pin_memory(original: Callable[..., torch.Tensor], self: torch.Tensor, device: Any = None) -> torch.Tensor:
    """A `Tensor.pin_memory` that works without a GPU. Source: `pin_memory` in `Memory.cpp`."""
    if has_torch_function_unary(self):
        return handle_torch_function(torch.Tensor.pin_memory, (self,), self)
    if labels.label_of(self) >= 0:
        raise cuda_errors.cannot_pin(self.dtype)
    return self if labels.is_pinned(self) else labels.mark_pinned(self.clone())


@replacing
def is_pinned(original: Callable[..., bool], self: torch.Tensor, device: Any = None) -> bool:
    """A `Tensor.is_pinned` for what `pin_memory` made."""
    return labels.is_pinned(self)


@replacing
def record_stream(original: Callable[..., None], self: torch.Tensor, stream: Any) -> None:
    """A `Tensor.record_stream` with nothing to do: work on virtual GPUs is done when a call returns."""
    if has_torch_function_unary(self):
        handle_torch_function(torch.Tensor.record_stream, (self,), self, stream)
    elif labels.label_of(self) == CPU:
        raise cuda_errors.no_kernel("aten::record_stream", "CPU")


@replacing
def refuse_off_host(original: Callable[..., torch.Tensor], self: torch.Tensor, *args: Any) -> torch.Tensor:
    """`Tensor.apply_` and its kin, which call Python for each number. Source: `tensor_apply.cpp`."""
    name = original.__name__
    if has_torch_function((self, *args)):
        return handle_torch_function(getattr(torch.Tensor, name), (self, *args), self, *args)  # type: ignore[no-any-return]
    if labels.label_of(self) >= 0:
        raise TypeError(f"{name} is only implemented on CPU tensors")
    return original(self, *args)


@replacing
def share_memory_(original: Callable[..., torch.Tensor], self: torch.Tensor) -> torch.Tensor:
    """A `Tensor.share_memory_` that leaves GPU tensors alone."""
    return self if labels.label_of(self) >= 0 else original(self)


@replacing
def is_shared(original: Callable[..., bool], self: torch.Tensor) -> bool:
    """Memory of a GPU is always."""
    return labels.label_of(self) >= 0 or original(self)


METHODS: dict[str, Callable[[Any], Any]] = {
    "to": conversions.wrap_to,
    "cpu": conversions.wrap_cpu,
    "numpy": wrap_numpy,
    "tolist": wrap_tolist,
    "data_ptr": wrap_data_ptr,
    "type": wrap_type,
    "type_as": wrap_type_as,
    "copy_": wrap_copy_,
    "__setitem__": wrap_setitem,
    "get_device": get_device,
    "pin_memory": pin_memory,
    "is_pinned": is_pinned,
    "record_stream": record_stream,
    **dict.fromkeys(("apply_", "map_", "map2_"), refuse_off_host),
    "share_memory_": share_memory_,
    "is_shared": is_shared,
    "register_hook": gradient_hooks.check_hooks,
}
