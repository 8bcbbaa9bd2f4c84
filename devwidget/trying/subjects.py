"""Subjects: what a step works on, and so what a trial may have to change for its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from devwidget.capture.step.batch import Arguments


@dataclass(slots=True)
class Subjects:
    """What a step is given."""

    model: nn.Module
    inputs: Arguments
    loss_fn: Any = None
    optimizer: torch.optim.Optimizer | None = None
