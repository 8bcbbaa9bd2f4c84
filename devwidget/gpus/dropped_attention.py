"""Attention with dropout, as the fused kernels of a GPU run it: they keep what went in and a seed, and never all scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.gpus.torch_internals import flash_attention, flash_attention_backward, functorch


class Options(NamedTuple):
    """Of one call, as `scaled_dot_product_attention` has them."""

    dropout_p: float
    is_causal: bool
    scale: float | None
    enable_gqa: bool


def attend_with_dropout(
    original: Callable[..., Any],
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor | None:  # fmt: skip
    """What comes out; None where a GPU runs no fused kernel, or nothing is dropped.

    Args:
        original: torch's own function, which computes it by all scores.
    """
    if not dropout_p or not is_fused(query, key, value, attn_mask, enable_gqa):
        return None
    if functorch.peek_interpreter_stack() is not None or torch.compiler.is_compiling():
        return None  # neither can see through a function of Python
    options = Options(dropout_p, is_causal, scale, enable_gqa)
    given = original, options, query, key, value, to_numbers(attn_mask, query.dtype)
    return _FusedAttention.apply(*given)  # type: ignore[no-any-return, no-untyped-call]


class _FusedAttention(torch.autograd.Function):
    """The kernel without dropout stands for the one of the GPU, with its memory and for whoever looks on; what it gives is
    replaced by what torch's own function gives, out of sight."""

    @staticmethod
    def forward(ctx: Any, original: Any, options: Options, query: Any, key: Any, value: Any, mask: Any) -> Any:
        ctx.original, ctx.options, ctx.random = original, options, torch.default_generator.get_state()
        out, sums = flash_attention(query, key, value, 0.0, options.is_causal, attn_mask=mask, scale=options.scale)
        with hide_from_modes():
            out.copy_(original(query, key, value, mask, **options._asdict()))
        ctx.save_for_backward(query, key, value, mask, out, sums)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        query, key, value, mask, out, sums = ctx.saved_tensors
        options = ctx.options
        gradients = flash_attention_backward(
            gradient, query, key, value, out, sums, 0.0, options.is_causal, attn_mask=mask, scale=options.scale
        )
        now = torch.default_generator.get_state()
        torch.default_generator.set_state(ctx.random)
        try:
            with hide_from_modes(), torch.enable_grad():
                # Copies, which are on no GPU for whoever checks the gradients.
                leaves = [tensor.detach().clone().requires_grad_() for tensor in (query, key, value)]
                again = ctx.original(*leaves, mask, **options._asdict())
                for place, found in zip(gradients, torch.autograd.grad(again, leaves, gradient.clone()), strict=True):
                    place.copy_(found)
        finally:
            torch.default_generator.set_state(now)
        return None, None, *gradients, None


def to_numbers(mask: Any, dtype: torch.dtype) -> Any:
    """A mask that is added to the scores, for one that says what is seen."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)


def is_fused(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, grouped: bool) -> bool:
    """Whether a fused kernel takes these."""
    if query.dtype == torch.float64:  # GPUs have none
        return False
    three = (query, key, value)
    plain = all(t.dim() == 4 and t.stride(-1) == 1 and t.numel() and t.shape[-1] == query.shape[-1] for t in three)
    shared = 1 if grouped else 2
    alike = plain and all(t.shape[:shared] == query.shape[:shared] for t in three)
    return bool(alike and (mask is None or (mask.dim() in (2, 4) and not mask.requires_grad)))
