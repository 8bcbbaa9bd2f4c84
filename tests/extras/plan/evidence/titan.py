"""Llama 3.1 as torchtitan writes, shards and recomputes it. Source: pytorch/torchtitan at 9dec370."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

VOCABULARY = 128_256


class Norm(nn.Module):
    """The root of mean squares, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Positions, as products of complex numbers."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[None, : x.shape[1], None]).flatten(3).type_as(x)


class Attention(nn.Module):
    """Causal attention whose keys and values are repeated for groups of heads."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.size, self.repeats = width // heads, heads // groups
        inner = groups * self.size
        self.q, self.k, self.v, self.o = (nn.Linear(width, out, bias=False) for out in (width, inner, inner, width))

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        q, k, v = (each.unflatten(-1, (-1, self.size)) for each in (q, k, v))
        q, k = rotate(q, turns), rotate(k, turns)
        k, v = (each[:, :, :, None].expand(-1, -1, -1, self.repeats, -1).flatten(2, 3) for each in (k, v))
        out = functional.scaled_dot_product_attention(*(each.transpose(1, 2) for each in (q, k, v)), is_causal=True)
        return self.o(out.transpose(1, 2).contiguous().flatten(2))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention, and a gated feed-forward part."""

    def __init__(self, width: int, inner: int, heads: int, groups: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads, groups)
        self.up, self.down, self.gate = (
            nn.Linear(width, inner, False),
            nn.Linear(inner, width, False),
            nn.Linear(width, inner, False),
        )
        self.before, self.between = Norm(width), Norm(width)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        x = x + self.attention(self.before(x), turns)
        wide = self.between(x)
        return x + self.down(functional.silu(self.up(wide)) * self.gate(wide))  # type: ignore[no-any-return]


class Llama(nn.Module):
    """Of 8 billion parameters."""

    def __init__(self, length: int) -> None:
        super().__init__()
        width, heads = 4096, 32
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.register_buffer("turns", torch.empty(length, width // heads // 2, dtype=torch.complex64))
        self.layers = nn.ModuleList(Block(width, 14336, heads, 8) for _ in range(32))
        self.norm, self.head = Norm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.turns)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def compute_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """In float32."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))


_KEPT = {
    torch.ops.aten.mm.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,  # what virtual GPUs run in its place
}


def _select_kept() -> Any:
    """Keep what attention and every other product gives."""
    count: Counter[bool] = Counter()

    def choose(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        product = operator is torch.ops.aten.mm.default
        count[context.is_recompute] += product
        keeps = operator in _KEPT and not (product and count[context.is_recompute] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(choose)


def shard(model: Any, mesh: Any) -> None:
    """Each block is recomputed by operators, and a unit of FSDP2; the last one stays gathered."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    asked: dict[str, Any] = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)}
    for place, block in enumerate(model.layers):
        model.layers[place] = checkpoint_wrapper(block, context_fn=_select_kept, preserve_rng_state=False)
        fully_shard(model.layers[place], reshard_after_forward=place + 1 < len(model.layers), **asked)
    fully_shard(model, reshard_after_forward=True, **asked)
