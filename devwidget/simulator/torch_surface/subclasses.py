"""Tensors of other classes, fake ones among them: Python sees the GPU that they name, C++ must not, and would abort.

A CPU build of torch has no CUDA below Python, and autograd ends the process when it meets a tensor that claims it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from devwidget.simulator.devices import labels
from devwidget.simulator.devices.labels import CPU_DEVICE
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.patching import Patches
from devwidget.simulator.torch_internals import FakeTensor, fake_answers, locate_name
from devwidget.simulator.torch_surface import conversions

DEVICE_AT = 7
"""Place of `device` among the arguments. Source: `THPVariable_make_wrapper_subclass` in `python_variable.cpp`."""


def install_subclass_makers(patches: Patches) -> None:
    """Replace the functions with which Python makes such tensors."""
    for name, wrapper in {"_make_wrapper_subclass": wrap_make_wrapper, "_make_subclass": wrap_make_subclass}.items():
        patches.set(torch.Tensor, name, staticmethod(wrapper(getattr(torch.Tensor, name))))


def wrap_make_wrapper(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A wrapper of tensors of its own: it shows the device that it names, and takes no memory."""

    @functools.wraps(original)
    def _make_wrapper_subclass(*args: Any, **kwargs: Any) -> torch.Tensor:
        given = kwargs.get("device", args[DEVICE_AT] if len(args) > DEVICE_AT else None)
        if given is None or torch.device(conversions.as_device(given)).type != SimulationState.accelerator.type:
            return original(*args, **kwargs)
        if "device" in kwargs:
            kwargs["device"] = CPU_DEVICE
        else:
            args = (*args[:DEVICE_AT], CPU_DEVICE, *args[DEVICE_AT + 1 :])
        result = original(*args, **kwargs)
        labels.name_wrapper(result, conversions.label_of_device(given))
        return result

    return _make_wrapper_subclass


def wrap_make_subclass(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A tensor under another class; fake ones choose the kernels of a device by `device_for_backend_keys`."""

    @functools.wraps(original)
    def _make_subclass(*args: Any, **kwargs: Any) -> torch.Tensor:
        device = kwargs.get("device_for_backend_keys")
        if device is not None and torch.device(device).type == SimulationState.accelerator.type:
            kwargs["device_for_backend_keys"] = CPU_DEVICE
        return original(*args, **kwargs)

    return _make_subclass


_DEVICE = torch.ops.prim.device.default


def install_fake_devices(patches: Patches) -> None:
    """Answer what C++ asks of fake tensors."""
    fake: Any = FakeTensor
    patches.set(fake, "__torch_dispatch__", classmethod(wrap_fake_dispatch(vars(fake)["__torch_dispatch__"].__func__)))
    handlers: Any = fake_answers
    original = handlers[_DEVICE]
    patches.set(*locate_name("fake_answers"), handlers | {_DEVICE: lambda args: hide_gpu(original(args))})
    # It would make a tensor on a GPU, which takes memory.
    patches.set(*locate_name("init_gpu_context"), lambda device: None)


def wrap_fake_dispatch(original: Callable[..., Any]) -> Callable[..., Any]:
    """`FakeTensor.__torch_dispatch__`."""

    @functools.wraps(original)
    def __torch_dispatch__(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = original(cls, func, types, args, kwargs or {})
        return hide_gpu(result) if func is _DEVICE else result

    return __torch_dispatch__


def hide_gpu(device: torch.device) -> torch.device:
    """The device that C++ may know of."""
    return CPU_DEVICE if device.type == SimulationState.accelerator.type else device
