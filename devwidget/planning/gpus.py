"""The GPUs of a plan: those of the accelerator that is simulated."""

from __future__ import annotations

import torch

from devwidget.simulator.devices.simulation_state import SimulationState


def gpu(index: int) -> torch.device:
    """One of them."""
    return torch.device(SimulationState.accelerator.type, index)


def is_on_gpu(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on any of them."""
    return tensor.device.type == SimulationState.accelerator.type
