"""What fine-tuning uses in place of full training: adapters next to frozen layers, and an optimizer with 8-bit state."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from devwidget.capture.tensors import registered_entries, walk_modules
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message

RANK = 16
"""Of the adapters of LoRA."""
ADAPTED = "q_proj", "k_proj", "v_proj", "o_proj"
"""Names of the linear layers that have one."""


class AdamW8bit(torch.optim.Optimizer):
    """Allocates what AdamW of bitsandbytes does: two bytes of state for each number, and two scales for each block of 256.

    Source: `Optimizer2State.init_state` in `bitsandbytes/optim/optimizer.py`; below 4,096 numbers the state is in float32.
    """

    BLOCK, LEAST = 256, 4096

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Make the state, whose values are never read; its kernel updates in place and takes no further memory."""
        for parameter in (each for group in self.param_groups for each in group["params"] if each.grad is not None):
            state = self.state[parameter]
            if state:
                continue
            small = parameter.numel() < self.LEAST
            for name in ("state1", "state2"):
                state[name] = torch.empty_like(parameter, dtype=torch.float32 if small else torch.uint8)
                if not small:
                    blocks = math.ceil(parameter.numel() / self.BLOCK)
                    state[f"absmax_of_{name}"] = torch.empty(blocks, device=parameter.device)


class Adapted(nn.Module):
    """A frozen linear layer with an adapter, as PEFT computes it.

    Source: `Linear.forward` in `peft/tuners/lora/layer.py`.
    """

    def __init__(self, base: nn.Linear, rank: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.base, self.dropout = base, nn.Dropout(dropout) if dropout else nn.Identity()
        self.down = nn.Linear(base.in_features, rank, bias=False, device=base.weight.device, dtype=torch.float32)
        self.up = nn.Linear(rank, base.out_features, bias=False, device=base.weight.device, dtype=torch.float32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both, added up."""
        result = self.base(x)
        added: torch.Tensor = result + self.up(self.down(self.dropout(x.to(self.down.weight.dtype))))
        return added.to(result.dtype)


def add_adapters(model: nn.Module, dropout: float = 0.0) -> nn.Module:
    """Freeze a model, and add adapters to the linear layers of its attention; raise DevwidgetError if it has none."""
    model.requires_grad_(False)
    found = False
    for _, module in list(walk_modules(model)):
        for name, child in list(registered_entries(module, "_modules")):
            if isinstance(child, nn.Linear) and name in ADAPTED:
                setattr(module, name, Adapted(child, RANK, dropout))
                found = True
    if not found:
        raise DevwidgetError(Message("no linear layer is called one of {names}", names=", ".join(ADAPTED)))
    return model
