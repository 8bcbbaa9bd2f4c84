"""Fake tensors, with which `torch.export` and `make_fx` trace: Python sees their virtual device, C++ the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from devwidget.simulator.devices.labels import CPU_DEVICE
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.patching import Patches
from devwidget.simulator.torch_internals import FakeTensor, fake_answers, locate_name

_DEVICE = torch.ops.prim.device.default


def install(patches: Patches) -> None:
    """Answer what C++ asks of fake tensors."""
    fake: Any = FakeTensor
    patches.set(fake, "__torch_dispatch__", classmethod(for_class(vars(fake)["__torch_dispatch__"].__func__)))
    handlers: Any = fake_answers
    original = handlers[_DEVICE]
    patches.set(*locate_name("fake_answers"), handlers | {_DEVICE: lambda args: below_python(original(args))})
    patches.set(*locate_name("init_gpu_context"), lambda device: None)  # it would make a tensor on a GPU, which takes memory


def for_class(original: Callable[..., Any]) -> Callable[..., Any]:
    """`FakeTensor.__torch_dispatch__`."""

    @functools.wraps(original)
    def __torch_dispatch__(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = original(cls, func, types, args, kwargs or {})
        return below_python(result) if func is _DEVICE else result

    return __torch_dispatch__


def below_python(device: torch.device) -> torch.device:
    """The device that C++ may know of."""
    return CPU_DEVICE if device.type == SimulationState.accelerator.type else device
