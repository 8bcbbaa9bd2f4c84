"""Kernels that torch's meta device does otherwise than a GPU, or not at all: without values they must take the same memory."""

from __future__ import annotations

import math
from typing import Any

import torch

from devwidget.capture import torch_internals as shared_internals
from devwidget.extras.meta.known_values import all_read, needs_values
from devwidget.gpus import torch_internals
from devwidget.gpus.composites import is_fused, to_numbers
from devwidget.gpus.labels import META_DEVICE
from devwidget.gpus.torch_internals import flash_attention, pack_padded_sequence, suggest_memory_format


def grouped_mm(a: torch.Tensor, b: torch.Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> torch.Tensor:
    """`_grouped_mm` in every dtype; torch's own on meta takes bfloat16 alone."""
    shape = [*a.shape[:-1], b.shape[-1]]
    if a.dim() == b.dim() == 2 and offs is not None:
        shape = [offs.shape[0], a.shape[0], b.shape[1]]
    elif a.dim() == 3 and b.dim() == 2:
        shape = [a.shape[1], b.shape[1]]
    return torch.empty(shape, dtype=out_dtype or a.dtype, device=META_DEVICE)


def run_convolution(given: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Channels last where one of the two is. Source: `determine_backend_memory_format` in `Convolution.cpp`."""
    formats = [suggest_memory_format(tensor) for tensor in (given, weight)]
    chosen = next((form for form in formats if form != torch.contiguous_format), torch.contiguous_format)
    result: torch.Tensor = torch.ops.aten.convolution.default(given, weight, *rest)
    return torch.empty_like(result, memory_format=chosen)


def batch_norm(given: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, ...]:
    """In the format that the input suggests, not in its strides. Source: `batch_norm_cuda` in `Normalization.cu`."""
    _, *others = torch.ops.aten.native_batch_norm.default(given, *rest)
    return torch.empty_like(given, memory_format=suggest_memory_format(given)), *others


def batch_norm_backward(gradient: torch.Tensor, given: torch.Tensor, *rest: Any) -> tuple[torch.Tensor | None, ...]:
    """As forward."""
    first, *others = torch.ops.aten.native_batch_norm_backward.default(gradient, given, *rest)
    return None if first is None else torch.empty_like(given, memory_format=suggest_memory_format(given)), *others


def layer_norm_backward(gradient: torch.Tensor, given: torch.Tensor, *rest: Any) -> tuple[torch.Tensor | None, ...]:
    """Contiguous. Source: `layer_norm_backward_cuda` in `layer_norm_kernel.cu`."""
    first, *others = torch.ops.aten.native_layer_norm_backward.default(gradient, given, *rest)
    return None if first is None else torch.empty_like(given, memory_format=torch.contiguous_format), *others


def ctc_loss_backward(gradient: torch.Tensor, log_probs: torch.Tensor, *rest: Any) -> torch.Tensor:
    """As large as the probabilities. Source: `ctc_loss_backward_gpu_template` in `LossCTC.cu`."""
    return torch.empty_like(log_probs, memory_format=torch.contiguous_format)


def pack_sequences(given: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """What is there of sequences of known lengths; the sizes of steps are real: what unpacks reads their memory.

    Source: `_pack_padded_sequence` in `PackedSequence.cpp`.
    """
    if (real := all_read(lengths)) is None:
        raise needs_values("`pack_padded_sequence`")
    places = torch.empty(given.shape[:2], dtype=torch.bool)
    packed, sizes = pack_padded_sequence(places, real, batch_first)
    return torch.empty((packed.shape[0], *given.shape[2:]), dtype=given.dtype, device=META_DEVICE), sizes


def scatter_add(given: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Out of place, except in the backward of `gather`, which adds into the zeros that it has made, as for all tensors
    outside meta.

    Source: `gather_backward` in `FunctionsManual.cpp`.
    """
    node: Any = shared_internals.current_autograd_node()
    is_own = node is not None and node.name() == "GatherBackward0" and not torch.is_grad_enabled()
    if is_own:
        return given.scatter_add_(dim, index, source)
    return given.scatter_add(dim, index, source)


META_KERNELS: dict[Any, Any] = {
    pack_padded_sequence: pack_sequences,
    torch_internals.grouped_mm: grouped_mm,
    torch.ops.aten.convolution.default: run_convolution,
    torch.ops.aten.native_batch_norm.default: batch_norm,
    torch.ops.aten.native_batch_norm_backward.default: batch_norm_backward,
    torch_internals.ctc_loss_backward: ctc_loss_backward,
    torch.ops.aten.native_layer_norm_backward.default: layer_norm_backward,
    torch.ops.aten.scatter_add.default: scatter_add,
}
"""Operator -> what runs on meta."""


def run_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor | None:  # fmt: skip
    """The fused kernel, which never holds all scores at once, or what a GPU runs in its place with dropout; None for what
    torch does itself. Meta would take the plain one, and drop in another way.

    A GPU's fused kernels drop, too: they keep the seed. Seen on an H100, with and without a mask.
    Source: `use_flash_attention_cpp` in `sdp_utils_cpp.cpp`, `convert_boolean_attn_mask` in `attention.cpp`.
    """
    fits = is_fused(query, key, value, attn_mask, enable_gqa)
    if not fits and not dropout_p:
        return None
    attn_mask = to_numbers(attn_mask, query.dtype)
    if not fits:
        return _plain_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
    fused: Any = flash_attention
    result: torch.Tensor = fused(query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale)[0]
    return result


def _plain_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, share: float, is_causal: bool, scale: float | None
) -> torch.Tensor:
    """All scores at once, dropped as GPUs do: a mask of booleans is kept.

    Source: `_scaled_dot_product_attention_math` in `attention.cpp`, `dropout` in `Dropout.cpp`.
    """
    if is_causal:
        seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
        mask = to_numbers(seen, query.dtype)
    if (times := query.shape[-3] // key.shape[-3]) > 1:
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    half_scale = math.sqrt(query.shape[-1] ** -0.5 if scale is None else scale)
    scores = (query * half_scale) @ (key.transpose(-2, -1) * half_scale)
    if mask is not None:
        scores = scores + mask if mask.requires_grad else scores.add_(mask)
    return torch.native_dropout(scores.softmax(-1), share, True)[0] @ value
