"""Operand: one tensor of an operator, with the device that it is on."""

from __future__ import annotations

from typing import NamedTuple

import torch

from devwidget.simulator.devices.labels import CPU


class Operand(NamedTuple):
    """One tensor of a call; `is_output` if the operator writes to it."""

    name: str
    tensor: torch.Tensor
    label: int
    is_output: bool

    @property
    def is_cpu_scalar(self) -> bool:
        """Zero-dimensional and on the CPU: what many kernels read on the host."""
        return self.label == CPU and self.tensor.dim() == 0
