"""Methods and attributes of tensors and storages that depend on the device or leave torch; and `torch.device`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import has_torch_function

from devwidget.capture.object_fields import is_exactly
from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.gpus import errors, gradients, labels, machine
from devwidget.gpus.labels import CPU, CPU_DEVICE, DEVICES, LABELS, META, META_DEVICE, TEMPORARY, inside, storage_id
from devwidget.gpus.patching import Patches, overrides, refusing, replaces, stand_in
from devwidget.gpus.state import simulation
from devwidget.gpus.torch_internals import StorageBase, TensorBase, functorch, locate_name, parse_to
from devwidget.records.schema.message import Message

Original = Callable[..., Any]
_Tensor = torch.Tensor


def label_of_device(device: Any) -> int:
    """Return the label of anything that names a device; an integer is a GPU."""
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


def name_of_type(kind: Any) -> str:
    """`torch.cuda.FloatTensor` of the type or its name."""
    if isinstance(kind, str):
        return kind
    return f"{kind.__module__}.{kind.__name__}"


@replaces(*locate_name("parse_to"))
def _parse_to(original: Original, *args: Any, **kwargs: Any) -> Any:
    """`Module.to` calls it; a number is a GPU, and a tensor is on its virtual device."""
    other: Any = args[0] if args else kwargs.get("tensor")
    if isinstance(other, torch.Tensor):
        rest = {name: value for name, value in kwargs.items() if name != "tensor"}
        return original(labels.device_of(other), other.dtype, *args[1:], **rest)
    if "device" in kwargs:
        kwargs["device"] = as_device(kwargs["device"])
    return original(*map(as_device, args[:1]), *args[1:], **kwargs)


_original_to: Any = TensorBase.to


@overrides(_Tensor, "to")
def _to(original: Original, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if inside.depth:
        return original(self, *args, **kwargs)
    other: Any = args[0] if args else kwargs.get("other")
    if isinstance(other, torch.Tensor):
        return _convert_like(original, self, other, args, kwargs)
    if args and isinstance(args[0], int):
        args = (as_device(args[0]), *args[1:])
    elif isinstance(kwargs.get("device"), int):
        kwargs["device"] = as_device(kwargs["device"])
    copy = kwargs.pop("copy", False)
    most = 2 if args and isinstance(args[0], torch.dtype) else 3
    if len(args) > most:  # `copy` came by position
        args, copy = args[:most], args[most]
    device, dtype, non_blocking, memory_format = parse_to(*args, **kwargs)
    label = label_of_device(labels.device_of(self) if device is None else device)
    return _convert_to(original, self, label, dtype, non_blocking, copy, memory_format)


def _convert_like(original: Original, self: torch.Tensor, other: torch.Tensor, args: Any, kwargs: Any) -> Any:
    rest = (*args[1:], *(kwargs[name] for name in ("non_blocking", "copy") if name in kwargs))
    non_blocking, copy = (*rest, False, False)[:2]
    label = label_of_device(labels.device_of(other))
    return _convert_to(original, self, label, other.dtype, non_blocking, copy, kwargs.get("memory_format"))


def _convert_to(
    original: Original, self: torch.Tensor, label: int, dtype: Any, non_blocking: Any, copy: Any, memory_format: Any
) -> Any:
    """The tensor under a label: itself if nothing changes, else a copy."""
    options: dict[str, Any] = {} if memory_format is None else {"memory_format": memory_format}
    if label_of_device(labels.device_of(self)) == label:
        return original(self, dtype or self.dtype, non_blocking, copy, **options)
    options["dtype"] = dtype
    if non_blocking:
        options["non_blocking"] = True
    return labels.move_tensor(self, label, options)


@overrides(_Tensor, "cuda")
def _cuda(
    original: Original, self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = torch.preserve_format
) -> Any:
    label = machine.current_index() if device is None else label_of_device(device)
    if label < 0:
        raise RuntimeError("Invalid device, must be cuda device")
    return _convert_to(_original_to, self, label, None, non_blocking, False, memory_format)


@overrides(_Tensor, "cpu")
def _cpu(original: Original, self: torch.Tensor, memory_format: Any = torch.preserve_format) -> Any:
    if inside.depth:
        return original(self, memory_format=memory_format)
    return _convert_to(_original_to, self, CPU, None, False, False, memory_format)


RealDevice = torch.device


def _make_device(cls: type, *args: Any, **kwargs: Any) -> Any:
    """A real `torch.device`; an integer alone names a GPU."""
    given: Any = args[0] if args else kwargs.get("device", kwargs.get("index"))
    is_number = isinstance(given, int) and not isinstance(given, bool)
    if not simulation.is_running or len(args) + len(kwargs) != 1 or not is_number or given < 0:
        return RealDevice(*args, **kwargs)
    return DEVICES[given]


@overrides(_Tensor, "numpy")
def _numpy(original: Original, self: torch.Tensor, *, force: bool = False) -> Any:
    """Source: `tensor_numpy.cpp`."""
    label = labels.label_of(self)
    if label >= 0 and not force:
        raise TypeError(
            f"can't convert {labels.name_of(label)} device type tensor to numpy. Use Tensor.cpu() to "
            "copy the tensor to host memory first."
        )
    simulation.values.check_known(self, "`Tensor.numpy`")
    return original(simulation.values.read_values(self.detach().cpu() if label >= 0 else self), force=force)


@overrides(_Tensor, "type")
def _type(original: Original, self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """A GPU tensor stays on its GPU. Source: `THPVariable_type`."""
    label = labels.label_of(self)
    if dtype is None:
        if not simulation.compute:
            return errors.type_text(self.dtype, label >= 0)
        name = original(self)  # sparse ones have names of their own
        if label >= 0:
            return name.replace("torch.", "torch.cuda.", 1)
        return name
    if isinstance(dtype, torch.dtype):
        return original(self, dtype, non_blocking, **kwargs)
    name, of_gpus = name_of_type(dtype), "torch.cuda."
    wanted = original(torch.zeros(0), name.replace(of_gpus, "torch.", 1)).dtype
    if not name.startswith(of_gpus):
        return self.to(CPU_DEVICE, wanted, non_blocking)
    return self.to(DEVICES[label if label >= 0 else machine.current_index()], wanted, non_blocking)


@overrides(_Tensor, "type_as")
def _type_as(original: Original, self: torch.Tensor, other: torch.Tensor) -> Any:
    if inside.depth:
        return original(self, other)
    return _convert_like(_original_to, self, other, (), {})


@overrides(_Tensor, "copy_")
def _copy_(original: Original, self: torch.Tensor, src: Any, non_blocking: bool = False) -> Any:
    return original(self, _place_like(self, src), non_blocking)


@replaces(_Tensor, "__setitem__")
def _setitem(original: Original, self: torch.Tensor, key: Any, value: Any) -> Any:
    if has_torch_function((self, value)):
        # C++ hands the call over before it looks at anything, with `torch.Tensor.__setitem__` for the function, which is this.
        return original(self, key, value)
    parts = key if isinstance(key, tuple) else (key,)
    if is_exactly(value, (bool, int, float, complex)):
        if functorch.peek_interpreter_stack() is not None and (label := labels.label_of(self)) >= 0:
            # `vmap` makes one for each sample of it, which is no single number any more, and would be one of the CPU.
            value = torch.tensor(value, dtype=self.dtype, device=DEVICES[label])
        elif _is_indexed_from_elsewhere(self, parts):
            value = torch.tensor(value, dtype=self.dtype)
    if not _is_copied(parts, value):
        return original(self, key, value)
    return original(self, key, _place_like(self, value))


def _is_copied(parts: tuple[Any, ...], value: Any) -> bool:
    """True where a value from another device is copied. What tensors index is put there by a kernel of one device.

    Source: `THPVariable_setitem`, and `canDispatchToMaskedFill` for a single number of the CPU.
    """
    if not any(map(_is_tensor_index, parts)):
        return True
    return isinstance(value, torch.Tensor) and value.numel() == 1 and labels.label_of(value) == CPU


def _is_tensor_index(part: Any) -> bool:
    """True for what C++ makes a tensor of indices; an integer in a tensor without dimensions is one index."""
    if isinstance(part, torch.Tensor):
        return part.dim() > 0 or part.dtype in (torch.bool, torch.uint8)
    return isinstance(part, list) or getattr(part, "ndim", 0) > 0  # a list, or an array of numpy


def _is_indexed_from_elsewhere(tensor: torch.Tensor, parts: tuple[Any, ...]) -> bool:
    """True where C++ must not take the one device it sees for that of both: torch 2.15 then fills with `index_fill_`."""
    label = labels.label_of(tensor)
    if label >= 0 and any(isinstance(part, list) for part in parts):
        return True
    return any(labels.label_of(part) != label for part in labels.list_tensors(parts))


def _place_like(tensor: torch.Tensor, value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.requires_grad and torch.is_grad_enabled():
        own = labels.label_of(tensor)
        if own >= CPU and own != TEMPORARY and labels.label_of(value) != own:
            return labels.move_tensor(value, own)
    return value


@overrides(_Tensor, "data_ptr")
def _data_ptr(original: Original, self: torch.Tensor) -> Any:
    """Programs tell tensors apart by it, also those without values, which all begin at 0."""
    if simulation.compute or labels.real_device(self) != META_DEVICE or not self.numel():
        return original(self)
    return storage_id(self) + int(self.storage_offset()) * self.element_size()


@overrides(_Tensor, "tolist")
def _tolist(original: Original, self: torch.Tensor) -> Any:
    simulation.values.check_known(self, "`Tensor.tolist`")
    return original(simulation.values.read_values(self))


_grad = TensorBase.grad
_read_grad: Callable[[torch.Tensor], Any] = _grad.__get__


def install_properties(patches: Patches) -> None:
    """Replace what is not a function: properties of tensors and storages, how storages are made, and `torch.device`."""
    patches.set(torch, "device", stand_in(_make_device, RealDevice))
    patches.set(_Tensor, "device", property(get_device_property))
    patches.set(_Tensor, "is_cpu", property(lambda self: get_device_property(self).type == "cpu"))
    patches.set(_Tensor, "is_cuda", property(lambda self: labels.label_of(self) >= 0 and not inside.depth))
    patches.set(_Tensor, "grad", property(_get_grad, _set_grad, _grad.__delete__, _grad.__doc__))
    patches.set(_Storage, "device", property(_storage_device))
    patches.set(_Storage, "__new__", staticmethod(_new_storage))


def get_device_property(self: torch.Tensor) -> torch.device:
    """The virtual device."""
    if inside.depth:
        return labels.real_device(self)
    return labels.device_of(self)


def _get_grad(self: torch.Tensor) -> Any:
    """The gradient, which is where its tensor is. Optimizers read it for each parameter, so it stays short."""
    gradient = _read_grad(self)
    try:
        if gradient is not None and LABELS.get(storage_id(gradient)) == TEMPORARY:
            gradients.settle_gradient(gradient, self)
    except NotImplementedError:  # without storage, as a sparse gradient is
        gradients.settle_gradient(gradient, self)
    return gradient


def _set_grad(self: torch.Tensor, value: Any) -> None:
    """Source: `THPVariable_set_grad`."""
    if isinstance(value, torch.Tensor):
        own, given = labels.device_of(self), labels.device_of(value)
        if own != given and TEMPORARY not in (labels.label_of(self), labels.label_of(value)):
            if own.type == given.type:
                how, part = ("located on device with index", "index")
            else:
                how, part = ("with device type", "type")
            raise RuntimeError(
                f"attempting to assign a gradient {how} '{getattr(given, part)}' to a tensor {how} '{getattr(own, part)}'. "
                "Please ensure that the gradient and the tensor are on the same device"
            )
    _grad.__set__(self, value)


@overrides(_Tensor, "pin_memory")
def _pin_memory(original: Original, self: torch.Tensor, device: Any = None) -> torch.Tensor:
    return self if labels.is_pinned(self) else labels.pin_copy(self)


replaces(_Tensor, "is_pinned")(lambda original, self, device=None: labels.is_pinned(self))
replaces(_Tensor, "is_shared")(lambda original, self: labels.label_of(self) >= 0 or original(self))
replaces(_Tensor, "share_memory_")(lambda original, self: self if labels.label_of(self) >= 0 else original(self))
overrides(_Tensor, "get_device")(lambda original, self: max(labels.label_of(self), -1))


@overrides(_Tensor, "record_stream")
def _record_stream(original: Original, self: torch.Tensor, stream: Any) -> None:
    if labels.label_of(self) == CPU:
        raise errors.no_kernel("aten::record_stream", "CPU")


@overrides(_Tensor, "apply_", "map_", "map2_")
def _call_python(original: Original, self: torch.Tensor, *args: Any) -> Any:
    """Source: `tensor_apply.cpp`."""
    if labels.label_of(self) >= 0:
        raise TypeError(f"{original.__name__} is only implemented on CPU tensors")
    return original(self, *args)


# Storages: what deepcopy, pickle, `torch.save` and `torch.load` work with.


_real_device: Callable[[Any], torch.device] = StorageBase.device.__get__
_Storage = torch.UntypedStorage


def _new_storage(cls: type[_Storage], *args: Any, device: Any = None, **kwargs: Any) -> _Storage:
    label = CPU if device is None else label_of_device(device)
    if label >= 0:
        device = "cpu" if simulation.compute else "meta"
    made: _Storage = StorageBase.__new__(cls, *args, **kwargs, **({} if device is None else {"device": device}))
    if label >= 0:
        labels.label_storage(made, label)
    return made


def _storage_device(self: _Storage) -> torch.device:
    label = LABELS.get(self._cdata, CPU)
    if label < 0 and simulation.compute:
        return _real_device(self)
    return labels.device_for_label(label)


def _copy_storage(storage: _Storage, label: int) -> _Storage:
    if label != META and storage.device.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    # Copying a storage makes tensors on the way.
    with hide_from_modes():
        values = not (label == META or _real_device(storage).type == "meta")
        copy: _Storage = _Storage(storage.nbytes(), device="cpu" if values else "meta")  # type: ignore[no-untyped-call]
        if values:
            copy.copy_(storage)
        if label != META:
            simulation.values.copy_known(storage, copy)
    if label >= 0 or (label == META and not simulation.compute):
        labels.label_storage(copy, label)
    return copy


@replaces(_Storage, "to")
def _storage_to(original: Original, self: _Storage, *, device: Any, non_blocking: bool = False) -> _Storage:
    label = label_of_device(device)
    if self.device == labels.device_for_label(label):
        return self
    copy = _copy_storage(self, label)
    if non_blocking and label == CPU:
        copy._devwidget_pinned = True  # type: ignore[attr-defined]
    return copy


replaces(_Storage, "clone")(lambda original, self: _copy_storage(self, LABELS.get(self._cdata, CPU)))
replaces(_Storage, "cpu")(lambda original, self: self.to(device="cpu"))
replaces(_Storage, "is_pinned")(lambda original, self, device=None: getattr(self, "_devwidget_pinned", False))
replaces(_Storage, "is_shared")(lambda original, self: LABELS.get(self._cdata, CPU) >= 0 or original(self))


@replaces(_Storage, "cuda")
def _storage_cuda(original: Original, self: _Storage, device: Any = None, non_blocking: bool = False) -> Any:
    return self.to(device="cuda" if device is None else device)


@replaces(_Storage, "pin_memory")
def _pin_storage(original: Original, self: _Storage, device: Any = None) -> _Storage:
    if self.device.type != "cpu":
        raise TypeError(f"cannot pin '{self.type()}' only CPU memory can be pinned")
    pinned = _copy_storage(self, CPU)
    pinned._devwidget_pinned = True  # type: ignore[attr-defined]
    return pinned


@replaces(_Storage, "resize_")
def _resize_storage(original: Original, self: _Storage, size: int) -> Any:
    result = original(self, size)
    labels.measure_storage(self)
    return result


@replaces(_Storage, "data_ptr")
def _storage_data_ptr(original: Original, self: _Storage) -> Any:
    if simulation.compute or _real_device(self).type != "meta":
        return original(self)
    return self._cdata


_refuse_sharing = refusing(
    Message("a tensor of a virtual GPU cannot be sent to another process"),
    why=Message("each process has its own memory for each virtual GPU"),
    instead=Message("send `tensor.cpu()`, and move it where it arrives"),
)


@replaces(_Storage, "_share_cuda_")
def _share_cuda_(original: Original, self: _Storage, *args: Any, **kwargs: Any) -> Any:
    if LABELS.get(self._cdata, CPU) < 0:
        raise RuntimeError(f"{original.__name__}: only available on CUDA")
    return _refuse_sharing()
