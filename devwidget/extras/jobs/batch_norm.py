"""Batch norms that are synchronized over ranks, for which only GPUs have kernels.

Sums and statistics of half precision are kept in `float32`. Source: `Normalization.cuh`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor
Optional = torch.Tensor | None
LOW = (torch.float16, torch.bfloat16)


def _accumulated(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in LOW else tensor


def _over_channels(values: Tensor, like: Tensor) -> Tensor:
    """`[C]` -> `[1, C, 1, ...]`."""
    return values.view(1, -1, *(1,) * (like.dim() - 2))


def _without_channels(tensor: Tensor) -> list[int]:
    return [dim for dim in range(tensor.dim()) if dim != 1]


def _stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(_accumulated(input), _without_channels(input), correction=0)
    return mean, (variance + eps).rsqrt()


def _gather_stats_with_counts(
    input: Tensor, mean: Tensor, invstd: Tensor, running_mean: Optional, running_var: Optional, momentum: float, eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The statistics of all ranks together: `f32[ranks, channels]` -> `f32[channels]`."""
    mean, invstd, counts = _accumulated(mean), _accumulated(invstd), _accumulated(counts)
    average, squares, total = torch.zeros_like(mean[0]), torch.zeros_like(mean[0]), mean.new_zeros(())
    for one_mean, one_invstd, count in zip(mean, invstd, counts, strict=True):
        share = 1 / (total + count)
        squares += (one_invstd**-2 - eps) * count + (average - one_mean) ** 2 * total * count * share
        average = total * share * average + count * share * one_mean
        total = total + count
    if running_mean is not None:
        running_mean.copy_((1 - momentum) * running_mean + momentum * average)
    if running_var is not None:
        running_var.copy_((1 - momentum) * running_var + momentum * squares / (total - 1))
    return average, (squares / total + eps).rsqrt()


def _gather_stats(
    input: Tensor, mean: Tensor, invstd: Tensor, running_mean: Optional, running_var: Optional, momentum: float, eps: float,
    count: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    counts = mean.new_full((len(mean),), count)
    return _gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps, counts)


def _elemt(input: Tensor, weight: Optional, bias: Optional, mean: Tensor, invstd: Tensor, eps: float) -> Tensor:
    scale = invstd if weight is None else invstd * weight
    result = (_accumulated(input) - _over_channels(mean, input)) * _over_channels(scale, input)
    return (result if bias is None else result + _over_channels(bias, input)).to(input.dtype)


def _backward_reduce(
    grad_out: Tensor, input: Tensor, mean: Tensor, invstd: Tensor, weight: Optional, input_g: bool, weight_g: bool, bias_g: bool
) -> tuple[Optional, ...]:
    """What ranks add up before the gradient of the input, and the gradients of weight and bias."""
    gradient, dims = _accumulated(grad_out), _without_channels(input)
    sum_dy = gradient.sum(dims)
    sum_dy_xmu = (gradient * (_accumulated(input) - _over_channels(mean, input))).sum(dims)
    dtype = sum_dy.dtype if weight is None else weight.dtype
    parts = (sum_dy, input_g), (sum_dy_xmu, input_g), ((sum_dy_xmu * invstd).to(dtype), weight_g), (sum_dy.to(dtype), bias_g)
    return tuple(part.clone() if is_wanted else None for part, is_wanted in parts)  # no two results share memory


def _backward_elemt(
    grad_out: Tensor, input: Tensor, mean: Tensor, invstd: Tensor, weight: Optional, sum_dy: Tensor, sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:  # fmt: skip
    total = count.sum()
    centred = _accumulated(input) - _over_channels(mean, input)
    slope = _over_channels(invstd**2 * sum_dy_xmu / total, input)
    scale = invstd if weight is None else invstd * weight
    gradient = _accumulated(grad_out) - _over_channels(sum_dy / total, input) - centred * slope
    return (gradient * _over_channels(scale, input)).to(input.dtype)


SYNCED_BATCH_NORM: dict[str, Callable[..., Any]] = {
    "batch_norm_stats": _stats,
    "batch_norm_gather_stats": _gather_stats,
    "batch_norm_gather_stats_with_counts": _gather_stats_with_counts,
    "batch_norm_elemt": _elemt,
    "batch_norm_backward_reduce": _backward_reduce,
    "batch_norm_backward_elemt": _backward_elemt,
}
"""By the operator's name."""
