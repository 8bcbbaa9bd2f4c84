"""`torch.device`, `Tensor.to`, `.cuda`, `.cpu` and their kin, for virtual devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function, has_torch_function_unary

from devwidget.gpus import labels, machine, moves
from devwidget.gpus.labels import CPU, DEVICES, META
from devwidget.gpus.patching import Patches, replacing
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.torch_internals import TensorBase, parse_to


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
    return META if device.type == "meta" else CPU


def as_device(device: Any) -> Any:
    """The same device, an integer being a GPU."""
    return DEVICES[device] if isinstance(device, int) and not isinstance(device, bool) else device


@replacing
def accept_numbers(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A parser of the arguments of `.to` for which a number is a GPU, and a tensor is where it is; `Module.to` asks it."""
    other: Any = args[0] if args else kwargs.get("tensor")
    if isinstance(other, torch.Tensor):
        rest = {name: value for name, value in kwargs.items() if name != "tensor"}
        return original(moves.device_for_label(moves.own_label(other)), other.dtype, *args[1:], **rest)
    args = (as_device(args[0]), *args[1:]) if args else ()
    return original(*args, **{name: as_device(value) if name == "device" else value for name, value in kwargs.items()})


original_to: Any = TensorBase.to


@replacing
def wrap_to(original: Callable[..., torch.Tensor], self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """A `Tensor.to` that knows virtual devices."""
    if has_torch_function((self, *args)):
        return handle_torch_function(torch.Tensor.to, (self, *args), self, *args, **kwargs)
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
        kwargs = {} if memory_format is None else {"memory_format": memory_format}
        return original(self, dtype or self.dtype, non_blocking, copy, **kwargs)
    return convert_to(original, self, label_of_device(device), dtype, non_blocking, copy, memory_format)


def convert_like(original: Any, self: torch.Tensor, other: torch.Tensor, args: Any, kwargs: Any) -> torch.Tensor:
    """The tensor where another one is, and in its dtype."""
    rest = (*args[1:], *(kwargs[name] for name in ("non_blocking", "copy") if name in kwargs))
    non_blocking, copy = (*rest, False, False)[:2]
    return convert_to(original, self, moves.own_label(other), other.dtype, non_blocking, copy, kwargs.get("memory_format"))


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
    if moves.own_label(self) == label:
        same: torch.Tensor = original(self, dtype or self.dtype, non_blocking, copy, **options)
        return same
    options["dtype"] = dtype
    if non_blocking:
        options["non_blocking"] = True
    return moves.move_tensor(self, label, options)


@replacing
def wrap_to_gpu(
    original: Callable[..., torch.Tensor],
    self: torch.Tensor,
    device: Any = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    """A `Tensor.cuda` that moves to a virtual GPU."""
    if has_torch_function_unary(self):
        given = {"non_blocking": non_blocking} if non_blocking else {}
        public = getattr(torch.Tensor, original.__name__)
        return handle_torch_function(public, (self,), self, device, memory_format=memory_format, **given)  # type: ignore[no-any-return]
    label = machine.current_index() if device is None else label_of_device(device)
    if label < 0:
        raise RuntimeError("Invalid device, must be cuda device")
    return convert_to(original_to, self, label, None, non_blocking, False, memory_format)


@replacing
def wrap_cpu(
    original: Callable[..., torch.Tensor], self: torch.Tensor, memory_format: torch.memory_format = torch.preserve_format
) -> torch.Tensor:
    """A `Tensor.cpu` that moves off a virtual GPU."""
    if has_torch_function_unary(self):
        return handle_torch_function(torch.Tensor.cpu, (self,), self, memory_format=memory_format)
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
        if not SimulationState.is_running:
            return RealDevice(*args, **kwargs)
        given = args[0] if args else kwargs.get("device", kwargs.get("index"))
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
