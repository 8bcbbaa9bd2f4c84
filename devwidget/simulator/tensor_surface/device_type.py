"""`torch.device(0)` on virtual GPUs: C++ would look for an accelerator."""

from __future__ import annotations

from typing import Any

import torch

from devwidget.simulator.devices.labels import DEVICES
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.patching import Patches

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


def install(patches: Patches) -> None:
    """Replace `torch.device`."""
    patches.set(torch, "device", device)
