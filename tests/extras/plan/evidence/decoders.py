"""Decoders as students of Stanford's CS336 write them, operator by operator as their recorded runs allocate."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY = 10_000


class Dense(nn.Module):
    """A matrix without a bias."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("...i,oi->...o", x, self.weight)


class Norm(nn.Module):
    """The root of mean squares, as the norm of the vector."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        root = torch.sqrt(x.norm(dim=-1, keepdim=True) ** 2 / x.shape[-1] + 1e-5)
        return torch.einsum("...d,d->...d", x / root, self.weight).to(x.dtype)


class PlainNorm(Norm):
    """The same from the squares, in float32 whatever comes in."""

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (self.weight * wide).to(x.dtype)


class Rotary(nn.Module):
    """Positions, written into the halves of an empty tensor; the tables are looked up for each sample."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        for name in ("cos", "sin"):
            self.register_buffer(name, torch.empty(length, width // 2))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        even, odd = x[..., ::2], x[..., 1::2]
        out = torch.empty_like(x)
        out[..., ::2] = even * cos - odd * sin
        out[..., 1::2] = even * sin + odd * cos
        return out


class JoinedRotary(Rotary):
    """Positions, both halves joined; the tables are views."""

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.cat((cos * even - sin * odd, sin * even + cos * odd), -1)


def softmax(x: Tensor) -> Tensor:
    """By hand."""
    powers = torch.exp(x - torch.max(x, dim=-1, keepdim=True)[0])
    return powers / torch.sum(powers, dim=-1, keepdim=True)


class Attention(nn.Module):
    """Causal attention of several heads, whose mask is made for each call."""

    def __init__(self, width: int, heads: int, rotary: Rotary) -> None:
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.q, self.k, self.v, self.out = (Dense(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (dense(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for dense in (self.q, self.k, self.v))
        positions = torch.arange(length, device=x.device).unsqueeze(0).expand(batch, -1)
        q, k = self.rotary(q, positions), self.rotary(k, positions)
        mixed = softmax(self.scores(q, k)) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        length = q.shape[-2]
        hidden = ~torch.triu(torch.ones(length, length, device=q.device), diagonal=1).to(torch.bool)
        scores = torch.einsum("...qd,...kd->...qk", q, k) / math.sqrt(q.shape[-1])
        return scores.masked_fill(hidden.expand(*q.shape[:2], -1, -1) == False, -1e9)  # noqa: E712


class ChosenAttention(Attention):
    """The same with `where`."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        places = torch.arange(q.shape[-2], device=q.device)
        scores = torch.einsum("...qd,...kd->...qk", q, k) / math.sqrt(q.shape[-1])
        return torch.where((places[:, None] >= places)[None, None], scores, float("-inf"))


class Gated(nn.Module):
    """The feed-forward part."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up, self.down, self.gate = Dense(width, inner), Dense(inner, width), Dense(width, inner)

    def forward(self, x: Tensor) -> Tensor:
        up, gate = self.up(x), self.gate(x)
        return self.down(up * torch.sigmoid(up) * gate)  # type: ignore[no-any-return]


class FusedGated(Gated):
    """The same with torch's own SiLU, which keeps one tensor less."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.up(x)) * self.gate(x))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Both parts, each around its norm."""

    def __init__(self, attention: Attention, feed: Gated, norm: type[Norm], width: int) -> None:
        super().__init__()
        self.attention, self.feed = attention, feed
        self.before, self.between = norm(width), norm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        return x + self.feed(self.between(x))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """The whole; `handout` builds it from the parts that the course gives out, else from those of one student."""

    def __init__(self, layers: int, width: int, heads: int, length: int, *, handout: bool = False) -> None:
        super().__init__()
        attention, norm, rotary, feed = (
            (ChosenAttention, PlainNorm, JoinedRotary, FusedGated) if handout else (Attention, Norm, Rotary, Gated)
        )
        shared = rotary(length, width // heads)
        self.embedding = nn.Parameter(torch.empty(VOCABULARY, width))
        self.blocks = nn.ModuleList(
            Block(attention(width, heads, shared), feed(width, 4 * width), norm, width) for _ in range(layers)
        )
        self.norm, self.head = norm(width), Dense(width, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding[ids]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """By hand."""
    logits = logits - torch.max(logits, dim=-1, keepdim=True)[0]
    unlikely = -(logits - torch.log(torch.sum(torch.exp(logits), dim=-1, keepdim=True)))
    return torch.mean(torch.gather(unlikely, -1, targets.unsqueeze(-1)))


def cross_entropy_of_softmax(logits: Tensor, targets: Tensor) -> Tensor:
    """From the probabilities, which backward needs beside the powers that they were made of."""
    return -torch.mean(torch.log(torch.gather(softmax(logits), -1, targets.unsqueeze(-1))))


class AdamWByHand(torch.optim.Optimizer):
    """One parameter after the other, with temporaries of the size of one."""

    def __init__(self, parameters: Any, lr: float = 1e-4) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["mean"], state["square"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
                state["mean"].mul_(0.9).add_(parameter.grad, alpha=0.1)
                state["square"].mul_(0.95).addcmul_(parameter.grad, parameter.grad, value=0.05)
                parameter.addcdiv_(state["mean"], state["square"].sqrt().add_(1e-8), value=-group["lr"])
