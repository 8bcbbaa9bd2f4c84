"""Tensors that are made of others: a subclass that says it is on a GPU may not say so to C++, which would abort.

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
from devwidget.simulator.tensor_surface import conversions

DEVICE_AT = 7
"""Place of `device` among the arguments. Source: `THPVariable_make_wrapper_subclass` in `python_variable.cpp`."""


def install(patches: Patches) -> None:
    """Replace the functions with which Python makes such tensors."""
    for name, wrapper in {"_make_wrapper_subclass": wrapping, "_make_subclass": subclassing}.items():
        patches.set(torch.Tensor, name, staticmethod(wrapper(getattr(torch.Tensor, name))))


def wrapping(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
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


def subclassing(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A tensor under another class; fake ones choose the kernels of a device by `device_for_backend_keys`."""

    @functools.wraps(original)
    def _make_subclass(*args: Any, **kwargs: Any) -> torch.Tensor:
        device = kwargs.get("device_for_backend_keys")
        if device is not None and torch.device(device).type == SimulationState.accelerator.type:
            kwargs["device_for_backend_keys"] = CPU_DEVICE
        return original(*args, **kwargs)

    return _make_subclass
