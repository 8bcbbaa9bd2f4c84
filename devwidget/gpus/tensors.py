"""Methods and attributes of tensors, and of storages, that tell or change where they are, leave torch, name types or write into
others; and `torch.device`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import has_torch_function

from devwidget.capture.object_fields import is_exactly
from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.gpus import errors, gradients, labels, machine
from devwidget.gpus.labels import CPU, DEVICES, LABELS, META, TEMPORARY, inside, storage_id
from devwidget.gpus.patching import Patches, overridable, replacing, wrap_with_refusal
from devwidget.gpus.state import simulation
from devwidget.gpus.torch_internals import StorageBase, TensorBase, functorch, locate_name, parse_to
from devwidget.records.schema.message import Message


def label_of_device(device: Any) -> int:
    """The label of anything that names a device; an integer is a GPU.

    Raises:
        torch.AcceleratorError: if there is no such GPU.
    """
    if isinstance(device, int):
        return machine.check_index(device)
    if isinstance(device, str):
        device = torch.device(device)
    if device.type == "cuda":
        return machine.ordinal_of(device)
    if device.type == "meta":
        return META
    return CPU


def as_device(device: Any) -> Any:
    """The same device, an integer being a GPU."""
    if isinstance(device, int) and not isinstance(device, bool):
        return DEVICES[device]
    return device


@replacing
def accept_numbers(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A parser of the arguments of `.to` for which a number is a GPU, and a tensor is where it is; `Module.to` asks it."""
    other: Any = args[0] if args else kwargs.get("tensor")
    if isinstance(other, torch.Tensor):
        rest = {name: value for name, value in kwargs.items() if name != "tensor"}
        return original(labels.device_for_label(labels.own_label(other)), other.dtype, *args[1:], **rest)
    if args:
        args = (as_device(args[0]), *args[1:])
    else:
        args = ()
    return original(*args, **{name: as_device(value) if name == "device" else value for name, value in kwargs.items()})


original_to: Any = TensorBase.to


@overridable(torch.Tensor)
def wrap_to(original: Callable[..., torch.Tensor], self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """A `Tensor.to` that knows virtual devices."""
    if labels.inside.depth:
        return original(self, *args, **kwargs)
    other: Any = args[0] if args else kwargs.get("other")
    if isinstance(other, torch.Tensor):
        return convert_like(original, self, other, args, kwargs)
    if args and isinstance(args[0], int):
        args = (as_device(args[0]), *args[1:])
    elif isinstance(kwargs.get("device"), int):
        kwargs["device"] = as_device(kwargs["device"])
    copy = kwargs.pop("copy", False)
    most = 2 if args and isinstance(args[0], torch.dtype) else 3
    # Copy came by position.
    if len(args) > most:
        args, copy = args[:most], args[most]
    device, dtype, non_blocking, memory_format = parse_to(*args, **kwargs)
    if device is None:
        if memory_format is None:
            kwargs = {}
        else:
            kwargs = {"memory_format": memory_format}
        return original(self, dtype or self.dtype, non_blocking, copy, **kwargs)
    return convert_to(original, self, label_of_device(device), dtype, non_blocking, copy, memory_format)


def convert_like(original: Any, self: torch.Tensor, other: torch.Tensor, args: Any, kwargs: Any) -> torch.Tensor:
    """The tensor where another one is, and in its dtype."""
    rest = (*args[1:], *(kwargs[name] for name in ("non_blocking", "copy") if name in kwargs))
    non_blocking, copy = (*rest, False, False)[:2]
    return convert_to(original, self, labels.own_label(other), other.dtype, non_blocking, copy, kwargs.get("memory_format"))


def convert_to(
    original: Any,
    self: torch.Tensor,
    label: int,
    dtype: torch.dtype | None,
    non_blocking: bool,
    copy: bool,
    memory_format: torch.memory_format | None,
) -> torch.Tensor:
    """The tensor under a label: itself if nothing changes, else a copy."""
    options: dict[str, Any] = {} if memory_format is None else {"memory_format": memory_format}
    if labels.own_label(self) == label:
        same: torch.Tensor = original(self, dtype or self.dtype, non_blocking, copy, **options)
        return same
    options["dtype"] = dtype
    if non_blocking:
        options["non_blocking"] = True
    return labels.move_tensor(self, label, options)


@overridable(torch.Tensor)
def wrap_to_gpu(
    original: Callable[..., torch.Tensor],
    self: torch.Tensor,
    device: Any = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    """A `Tensor.cuda` that moves to a virtual GPU."""
    label = machine.current_index() if device is None else label_of_device(device)
    if label < 0:
        raise RuntimeError("Invalid device, must be cuda device")
    return convert_to(original_to, self, label, None, non_blocking, False, memory_format)


@overridable(torch.Tensor)
def wrap_cpu(
    original: Callable[..., torch.Tensor], self: torch.Tensor, memory_format: torch.memory_format = torch.preserve_format
) -> torch.Tensor:
    """A `Tensor.cpu` that moves off a virtual GPU."""
    if labels.inside.depth:
        return original(self, memory_format=memory_format)
    return convert_to(original_to, self, CPU, None, False, False, memory_format)


RealDevice = torch.device


class _DeviceType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, RealDevice)

    def __subclasscheck__(cls, other: type) -> bool:
        return other is cls or issubclass(other, RealDevice)

    # torch's tables and its code generators compare with the type that they hold.
    def __eq__(cls, other: object) -> bool:
        return other is cls or other is RealDevice

    def __hash__(cls) -> int:
        return hash(RealDevice)


class device(metaclass=_DeviceType):
    """Makes real `torch.device` objects; an integer alone names a GPU."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A device."""
        if not simulation.is_running:
            return RealDevice(*args, **kwargs)
        if args:
            given = args[0]
        else:
            given = kwargs.get("device", kwargs.get("index"))
        if len(args) + len(kwargs) == 1 and isinstance(given, int) and not isinstance(given, bool):
            if given < 0:
                raise RuntimeError("Device index must not be negative")
            return DEVICES[given]
        return RealDevice(*args, **kwargs)


device.__module__ = "torch"
device.__qualname__ = device.__name__ = "device"


def install_device_type(patches: Patches) -> None:
    """Replace `torch.device`."""
    patches.set(torch, "device", device)


# Attributes and methods of tensors.


@overridable(torch.Tensor)
def wrap_numpy(original: Callable[..., Any], self: torch.Tensor, *, force: bool = False) -> Any:
    """A `Tensor.numpy` that refuses tensors on a GPU. Source: `tensor_numpy.cpp`."""
    label = labels.label_of(self)
    if label >= 0 and not force:
        raise TypeError(
            f"can't convert {labels.name_of(label)} device type tensor to numpy. Use Tensor.cpu() to "
            "copy the tensor to host memory first."
        )
    simulation.values.check_known(self, "`Tensor.numpy`")
    return original(simulation.values.read_values(self.detach().cpu() if label >= 0 else self), force=force)


@overridable(torch.Tensor)
def wrap_type(
    original: Callable[..., Any], self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any
) -> Any:
    """A `Tensor.type` that speaks of `torch.cuda.FloatTensor`."""
    if dtype is None:
        on_gpu = labels.label_of(self) >= 0
        if not simulation.compute:
            return errors.type_text(self.dtype, on_gpu)
        # Sparse ones have names of their own.
        name = original(self)
        if on_gpu:
            return name.replace("torch.", "torch.cuda.", 1)
        return name
    if isinstance(dtype, torch.dtype):
        return original(self, dtype, non_blocking, **kwargs)
    if isinstance(dtype, str):
        name = dtype
    else:
        name = f"{dtype.__module__}.{dtype.__name__}"
    gpu_types = "torch.cuda."
    wanted = original(torch.zeros(0), name.replace(gpu_types, "torch.", 1)).dtype
    return self.to(_device_of_type(self, is_gpu_type=name.startswith(gpu_types)), wanted, non_blocking)


def _device_of_type(tensor: torch.Tensor, *, is_gpu_type: bool) -> torch.device:
    """Where `Tensor.type` puts a tensor: it stays on the GPU that it is on. Source: `THPVariable_type`."""
    if not is_gpu_type:
        return labels.CPU_DEVICE
    label = labels.label_of(tensor)
    return labels.DEVICES[label if label >= 0 else machine.current_index()]


@overridable(torch.Tensor)
def wrap_type_as(original: Callable[..., Any], self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """A `Tensor.type_as` that also moves."""
    if labels.inside.depth:
        real: torch.Tensor = original(self, other)
        return real
    return convert_like(original_to, self, other, (), {})


@overridable(torch.Tensor)
def wrap_copy_(original: Callable[..., torch.Tensor], self: torch.Tensor, src: Any, non_blocking: bool = False) -> torch.Tensor:
    """A `Tensor.copy_` whose gradient finds its way back to another device."""
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
            return labels.move_tensor(value, own)
    return value


@overridable(torch.Tensor)
def wrap_data_ptr(original: Callable[..., int], self: torch.Tensor) -> int:
    """A `Tensor.data_ptr` by which programs tell tensors apart, also those without values, which all begin at 0."""
    if simulation.compute or labels.real_device(self) != labels.META_DEVICE or not self.numel():
        return original(self)
    return labels.storage_id(self) + int(self.storage_offset()) * self.element_size()


@overridable(torch.Tensor)
def wrap_tolist(original: Callable[..., Any], self: torch.Tensor) -> Any:
    """A `Tensor.tolist` that says why there is nothing to list."""
    simulation.values.check_known(self, "`Tensor.tolist`")
    return original(simulation.values.read_values(self))


_grad = TensorBase.grad
_read_grad: Callable[[torch.Tensor], Any] = _grad.__get__


def install_tensors(patches: Patches) -> None:
    """Replace what has to know virtual devices on `torch.Tensor`."""
    tensor = torch.Tensor
    for name, getter in {**PROPERTIES, "is_cuda": is_on_gpu}.items():
        patches.set(tensor, name, property(getter))
    patches.set(tensor, "grad", property(get_grad, set_grad, _grad.__delete__, _grad.__doc__))
    for name, wrapper in {**METHODS, "cuda": wrap_to_gpu}.items():
        patches.wrap(tensor, name, wrapper)
    patches.undo.add_step(gradients.release_hooks)
    patches.wrap(*locate_name("parse_to"), accept_numbers)


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
    return labels.visible_device(real, label)


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
            gradients.settle_gradient(gradient, self)
    except NotImplementedError:
        # No storage: a sparse gradient.
        gradients.settle_gradient(gradient, self)
    return gradient


def set_grad(self: torch.Tensor, value: Any) -> None:
    """Assign a gradient, which must be on the device of the tensor. Source: `THPVariable_set_grad`."""
    if isinstance(value, torch.Tensor):
        own, given = labels.device_of(self), labels.device_of(value)
        if own != given and labels.TEMPORARY not in (labels.label_of(self), labels.label_of(value)):
            if own.type == given.type:
                how, part = ("located on device with index", "index")
            else:
                how, part = ("with device type", "type")
            raise RuntimeError(
                f"attempting to assign a gradient {how} '{getattr(given, part)}' to a tensor {how} '{getattr(own, part)}'. "
                "Please ensure that the gradient and the tensor are on the same device"
            )
    _grad.__set__(self, value)


@overridable(torch.Tensor)
def get_device(original: Callable[..., int], self: torch.Tensor) -> int:
    """A `Tensor.get_device` that knows virtual GPUs."""
    return max(labels.label_of(self), -1)


@overridable(torch.Tensor)
def pin_memory(original: Callable[..., torch.Tensor], self: torch.Tensor, device: Any = None) -> torch.Tensor:
    """A `Tensor.pin_memory` that works without a GPU. Source: `pin_memory` in `Memory.cpp`."""
    if labels.label_of(self) >= 0:
        raise errors.cannot_pin(self.dtype)
    if labels.is_pinned(self):
        return self
    return labels.mark_pinned(self.clone())


@replacing
def is_pinned(original: Callable[..., bool], self: torch.Tensor, device: Any = None) -> bool:
    """A `Tensor.is_pinned` for what `pin_memory` made."""
    return labels.is_pinned(self)


@overridable(torch.Tensor)
def record_stream(original: Callable[..., None], self: torch.Tensor, stream: Any) -> None:
    """A `Tensor.record_stream` with nothing to do: work on virtual GPUs is done when a call returns."""
    if labels.label_of(self) == CPU:
        raise errors.no_kernel("aten::record_stream", "CPU")


@overridable(torch.Tensor)
def refuse_off_host(original: Callable[..., torch.Tensor], self: torch.Tensor, *args: Any) -> torch.Tensor:
    """`Tensor.apply_` and its kin, which call Python for each number. Source: `tensor_apply.cpp`."""
    name = original.__name__
    if labels.label_of(self) >= 0:
        raise TypeError(f"{name} is only implemented on CPU tensors")
    return original(self, *args)


@replacing
def share_memory_(original: Callable[..., torch.Tensor], self: torch.Tensor) -> torch.Tensor:
    """A `Tensor.share_memory_` that leaves GPU tensors alone."""
    if labels.label_of(self) >= 0:
        return self
    return original(self)


@replacing
def is_shared(original: Callable[..., bool], self: torch.Tensor) -> bool:
    """Memory of a GPU is always."""
    return labels.label_of(self) >= 0 or original(self)


METHODS: dict[str, Callable[[Any], Any]] = {
    "to": wrap_to,
    "cpu": wrap_cpu,
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
    "register_hook": gradients.check_hooks,
}


# Storages: what deepcopy, pickle, `torch.save` and `torch.load` work with.


_real_device = StorageBase.device.__get__
Storage = torch.UntypedStorage


def install_storages(patches: Patches) -> None:
    """Replace what has to know virtual devices on `torch.UntypedStorage`."""
    patches.set(Storage, "device", property(storage_device))
    patches.set(Storage, "__new__", staticmethod(new_storage))
    for name, wrapper in {**STORAGE_METHODS, "cuda": wrap_storage_to_gpu}.items():
        patches.wrap(Storage, name, wrapper)


def new_storage(cls: type[Storage], *args: Any, device: Any = None, **kwargs: Any) -> Storage:
    """A storage on a virtual GPU, or a real one."""
    label = CPU if device is None else label_of_device(device)
    if label >= 0:
        device = "cpu" if simulation.compute else "meta"
    made: Storage = StorageBase.__new__(cls, *args, **kwargs, **({} if device is None else {"device": device}))
    if label >= 0:
        labels.label_storage(made, label)
    return made


def storage_device(self: Storage) -> torch.device:
    """The virtual device."""
    label = LABELS.get(self._cdata, CPU)
    if label >= 0:
        return DEVICES[label]
    return labels.visible_device(_real_device(self), label)


@replacing
def wrap_clone(original: Callable[[Storage], Storage], self: Storage) -> Storage:
    """A copy on the same device."""
    return copy_storage(self, LABELS.get(self._cdata, CPU))


def copy_storage(storage: Storage, label: int) -> Storage:
    """A copy of a storage under a label.

    Raises:
        NotImplementedError: if it is on meta, and the copy is not to be.
    """
    if label != META and storage.device.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    # Copying a storage makes tensors on the way.
    with hide_from_modes():
        values = not (label == META or _real_device(storage).type == "meta")
        copy: Storage = Storage(storage.nbytes(), device="cpu" if values else "meta")  # type: ignore[no-untyped-call]
        if values:
            copy.copy_(storage)
        if label != META:
            simulation.values.copy_known(storage, copy)
    if label >= 0 or (label == META and not simulation.compute):
        labels.label_storage(copy, label)
    return copy


@replacing
def wrap_storage_to(original: Callable[..., Storage], self: Storage, *, device: Any, non_blocking: bool = False) -> Storage:
    """A copy on another device, or the storage itself."""
    label = label_of_device(device)
    if self.device == labels.device_for_label(label):
        return self
    copy = copy_storage(self, label)
    if non_blocking and label == CPU:
        copy._devwidget_pinned = True  # type: ignore[attr-defined]
    return copy


@replacing
def wrap_storage_cpu(original: Callable[..., Storage], self: Storage) -> Storage:
    """A copy on the CPU, or the storage itself."""
    host: Storage = self.to(device="cpu")
    return host


@replacing
def wrap_storage_to_gpu(
    original: Callable[..., Storage], self: Storage, device: Any = None, non_blocking: bool = False
) -> Storage:
    """A copy on a GPU, or the storage itself."""
    named = "cuda" if device is None else DEVICES[label_of_device(device)]
    there: Storage = self.to(device=named)
    return there


@replacing
def is_storage_pinned(original: Callable[..., bool], self: Storage, device: Any = None) -> bool:
    """Whether it is page-locked."""
    return getattr(self, "_devwidget_pinned", False)


@replacing
def is_storage_shared(original: Callable[..., bool], self: Storage) -> bool:
    """Memory of a GPU is always."""
    return LABELS.get(self._cdata, CPU) >= 0 or original(self)


@replacing
def pin_storage(original: Callable[..., Storage], self: Storage, device: Any = None) -> Storage:
    """A page-locked copy."""
    if self.device.type != "cpu":
        raise TypeError(f"cannot pin '{self.type()}' only CPU memory can be pinned")
    pinned = copy_storage(self, CPU)
    pinned._devwidget_pinned = True  # type: ignore[attr-defined]
    return pinned


@replacing
def wrap_resize_(original: Callable[[Storage, int], Any], self: Storage, size: int) -> Any:
    """A change of size that is counted."""
    result = original(self, size)
    labels.measure_storage(self)
    return result


@replacing
def storage_data_ptr(original: Callable[[Storage], int], self: Storage) -> int:
    """As that of a tensor."""
    if simulation.compute or _real_device(self).type != "meta":
        return original(self)
    return int(self._cdata)


def refuse_sharing(original: Callable[..., Any]) -> Callable[..., Any]:
    """A handle for another process, whose GPUs have a memory of their own."""
    refused = wrap_with_refusal(
        Message("a tensor of a virtual GPU cannot be sent to another process"),
        why=Message("each process has a memory of its own for each virtual GPU"),
        instead=Message("send `tensor.cpu()`, and move it where it arrives"),
    )(original)

    @functools.wraps(original)
    def _share_cuda_(self: Storage, *args: Any, **kwargs: Any) -> Any:
        if LABELS.get(self._cdata, CPU) < 0:
            raise RuntimeError(f"{original.__name__}: only available on CUDA")
        return refused(self, *args, **kwargs)

    return _share_cuda_


STORAGE_METHODS: dict[str, Callable[[Any], Any]] = {
    "clone": wrap_clone,
    "data_ptr": storage_data_ptr,
    "resize_": wrap_resize_,
    "to": wrap_storage_to,
    "cpu": wrap_storage_cpu,
    "is_pinned": is_storage_pinned,
    "pin_memory": pin_storage,
    "is_shared": is_storage_shared,
    "_share_cuda_": refuse_sharing,
}
