"""Kernels that torch lacks on meta, or chooses otherwise there: without values they must take the memory that others take."""

from __future__ import annotations

from typing import Any

import torch

from devwidget.simulator import torch_internals
from devwidget.simulator.devices import cuda_errors
from devwidget.simulator.devices.labels import META_DEVICE
from devwidget.simulator.torch_internals import flash_attention, pack_padded_sequence, suggest_memory_format
from devwidget.simulator.without_values.known_values import all_read


def grouped_mm(a: torch.Tensor, b: torch.Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> torch.Tensor:
    """`_grouped_mm` in every dtype; torch's own on meta takes bfloat16 alone."""
    shape = [*a.shape[:-1], b.shape[-1]]
    if a.dim() == b.dim() == 2 and offs is not None:
        shape = [offs.shape[0], a.shape[0], b.shape[1]]
    elif a.dim() == 3 and b.dim() == 2:
        shape = [a.shape[1], b.shape[1]]
    return torch.empty(shape, dtype=out_dtype or a.dtype, device=META_DEVICE)


def convolution(given: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
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


def pack(given: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """What is there of sequences of known lengths; the sizes of steps are real: what unpacks reads their memory.

    Source: `_pack_padded_sequence` in `PackedSequence.cpp`.
    """
    if (real := all_read(lengths)) is None:
        raise cuda_errors.needs_values("`pack_padded_sequence`")
    places = torch.empty(given.shape[:2], dtype=torch.bool)
    packed, sizes = pack_padded_sequence(places, real, batch_first)
    return torch.empty((packed.shape[0], *given.shape[2:]), dtype=given.dtype, device=META_DEVICE), sizes


INSTEAD: dict[Any, Any] = {
    pack_padded_sequence: pack,
    torch_internals.grouped_mm: grouped_mm,
    torch.ops.aten.convolution.default: convolution,
    torch.ops.aten.native_batch_norm.default: batch_norm,
    torch.ops.aten.native_batch_norm_backward.default: batch_norm_backward,
    torch_internals.ctc_loss_backward: ctc_loss_backward,
    torch.ops.aten.native_layer_norm_backward.default: layer_norm_backward,
}
"""Operator -> what runs on meta."""


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor | None:  # fmt: skip
    """The fused kernel, which never holds all scores at once; None where it cannot be used. Meta would take the plain one.

    Source: `use_flash_attention_cpp` in `sdp_utils_cpp.cpp`, `convert_boolean_attn_mask` in `attention.cpp`.
    """
    if dropout_p or not _is_fused(query, key, value, attn_mask, enable_gqa):
        return None
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(~attn_mask, -torch.inf)
    fused: Any = flash_attention
    result: torch.Tensor = fused(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]
    return result


def _is_fused(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, grouped: bool) -> bool:
    three = (query, key, value)
    plain = all(t.dim() == 4 and t.stride(-1) == 1 and t.numel() and t.shape[-1] == query.shape[-1] for t in three)
    shared = 1 if grouped else 2
    alike = plain and all(t.shape[:shared] == query.shape[:shared] for t in three)
    return bool(alike and (mask is None or (mask.dim() in (2, 4) and not mask.requires_grad)))
