"""The models of the benchmarks, each with a forward pass and a training step, in one thread on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass
class Workload:
    """One model with its batch."""

    model: nn.Module
    batch: tuple[Any, ...]
    optimizer: torch.optim.Optimizer = field(init=False)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6)

    def forward(self) -> Any:
        return self.model(*self.batch)

    def loss(self) -> torch.Tensor:
        out = self.forward()
        return (out if isinstance(out, torch.Tensor) else out.logits).float().mean()

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()


def gpt2() -> Workload:
    from transformers import GPT2Config, GPT2LMHeadModel

    return Workload(GPT2LMHeadModel(GPT2Config()).eval(), (torch.randint(0, 50257, (1, 128)),))


def resnet50() -> Workload:
    from transformers import ResNetConfig, ResNetForImageClassification

    return Workload(ResNetForImageClassification(ResNetConfig()).eval(), (torch.randn(1, 3, 224, 224),))


def thin_gpt2() -> Workload:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 128, "n_embd": 32, "n_layer": 12, "n_head": 4, "n_positions": 64}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    return Workload(model, (torch.randint(0, 100, (1, 8)),))


def llama() -> Workload:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 512, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=48, num_key_value_heads=8)).eval()
    return Workload(model, (torch.randint(0, 512, (1, 64)),))


def mlp(layers: int = 4) -> Workload:
    return Workload(nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers))), (torch.randn(2, 8),))


def ten_thousand() -> Workload:
    groups = (nn.Sequential(*(nn.Linear(4, 4) for _ in range(50))) for _ in range(196))
    return Workload(nn.Sequential(*groups), (torch.randn(2, 4),))


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "GPT-2 small, 1 x 128": gpt2,
    "ResNet-50, 224": resnet50,
    "thin GPT-2, launch-bound": thin_gpt2,
    "llama, 48 thin layers": llama,
    "four-layer MLP": mlp,
    "10,000 modules": ten_thousand,
}
