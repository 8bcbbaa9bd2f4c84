"""What a step works on, and so what a trial may have to change for its time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from devwidget.capture.modules import is_module, walk_modules
from devwidget.capture.step.batch import Arguments


@dataclass(slots=True)
class Subjects:
    """What a step is given."""

    model: nn.Module
    inputs: Arguments
    loss_fn: Any = None
    optimizer: torch.optim.Optimizer | None = None

    def modules(self) -> Iterator[nn.Module]:
        """Those of the model and of the loss."""
        roots = [each for each in (self.model, self.loss_fn) if is_module(each)]
        return iter({id(module): module for root in roots for _, module in walk_modules(root)}.values())
