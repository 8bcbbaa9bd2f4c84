"""Random generators of virtual GPUs.

All devices draw from the CPU's default stream, so that a program gives the same numbers on virtual GPUs as on the CPU.
"""

from __future__ import annotations

from typing import Any

import torch

from devwidget.capture.torch_internals import Generator as RealGenerator
from devwidget.records.schema.message import Message
from devwidget.simulator.devices import labels
from devwidget.simulator.devices.labels import DEVICES
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.patching import Patches, wrap_with_refusal
from devwidget.simulator.torch_surface import conversions

SHARDED_RANDOM = "torch.distributed.tensor._random"


class VirtualGenerator(RealGenerator):
    """A generator that says it belongs to a GPU."""

    def __new__(cls, device: Any = None) -> VirtualGenerator:
        """A generator of its own."""
        return super().__new__(cls)

    def __init__(self, device: Any = None) -> None:
        self._device = DEVICES[conversions.label_of_device(device)]
        labels.remember_generator(self)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The virtual GPU."""
        return self._device


_no_offset = wrap_with_refusal(
    Message("virtual GPUs have no offset of random numbers"),
    why=Message("all of them draw from the stream of the CPU, so that numbers equal its own"),
    instead="torch.cuda.get_rng_state() and set_rng_state()",
)
for _name in ("get_offset", "set_offset", "graphsafe_get_state", "graphsafe_set_state"):
    if hasattr(RealGenerator, _name):
        setattr(VirtualGenerator, _name, _no_offset(getattr(RealGenerator, _name)))


class DefaultGenerator(VirtualGenerator):
    """The default generator of a GPU: another name for the CPU's."""

    def __init__(self, device: torch.device) -> None:
        # Not looked up: that would count as the first use of a GPU.
        self._device = device
        labels.remember_generator(self)

    def manual_seed(self, seed: int) -> DefaultGenerator:
        """Seed the common stream."""
        torch.default_generator.manual_seed(seed)
        return self

    def seed(self) -> int:
        """Seed the common stream at random."""
        return torch.default_generator.seed()

    def initial_seed(self) -> int:
        """The seed of the common stream."""
        return torch.default_generator.initial_seed()

    def get_state(self) -> torch.Tensor:
        """The state of the common stream."""
        return torch.default_generator.get_state()

    def set_state(self, state: torch.Tensor) -> DefaultGenerator:
        """Set the state of the common stream."""
        torch.default_generator.set_state(state)
        return self


class _GeneratorType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, RealGenerator)


class Generator(metaclass=_GeneratorType):
    """Stands for `torch.Generator`: a real one for the CPU, a virtual one for a GPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """A generator for a device."""
        if SimulationState.is_running and conversions.label_of_device(device) >= 0:
            return VirtualGenerator(device)
        return RealGenerator(device)


def default_generators(count: int) -> tuple[DefaultGenerator, ...]:
    """One for each GPU."""
    return tuple(DefaultGenerator(DEVICES[index]) for index in range(count))


def install(patches: Patches) -> None:
    """Replace `torch.Generator`, and let random operators of a DTensor draw from the common stream."""
    patches.set(torch, "Generator", Generator)
    patches.when_loaded(SHARDED_RANDOM, lambda module: _draw_plainly(module, patches))


def _draw_plainly(module: Any, patches: Patches) -> None:
    """Each shard draws as on the CPU: torch would move the offset in a state of CUDA's own, which the common stream has not."""
    owner = getattr(module, "_RNGStateTracker", None)
    enabled = vars(owner).get("distribute_region_enabled") if owner is not None else None
    if isinstance(enabled, property):
        patches.set(owner, "distribute_region_enabled", property(lambda tracker: False, enabled.fset))
