"""Operators that only GPUs have: made of those that the CPU has, or refused in plain words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from devwidget.records.errors import SimulationError, message
from devwidget.records.schema.message import Message

aten: Any = torch.ops.aten


class NoKernel(SimulationError, NotImplementedError):
    """An operator that only GPUs have; a program that can do without it catches what CUDA would raise."""


_NOWHERE = ("Could not run 'aten::", "from the 'CPU' backend")
_LACKS = ("not implemented on the CPU", "on CPU does not support")


def is_wanted(error: RuntimeError) -> bool:
    """Whether the CPU says that it has no kernel at all."""
    text = message(error)
    return all(words in text for words in _NOWHERE) or any(words in text for words in _LACKS)


def refusal(name: str) -> NoKernel:
    """For an operator that nobody has written for the CPU."""
    return NoKernel(
        Message("virtual GPUs have no kernel for `{name}`", name=name),
        why=Message("their kernels are those of the CPU, and this operator has one for GPUs alone"),
        instead=Message("another way to compute the same, such as the eager form of it"),
    )


def _in_dtype(product: Callable[..., torch.Tensor], count: int) -> Callable[..., torch.Tensor]:
    """A product that is summed and returned in a wider dtype. Source: `cuda/Blas.cpp`."""

    def in_dtype(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensors, dtype = args[:count], args[count]
        if dtype != tensors[-1].dtype and (dtype != torch.float32 or tensors[-1].dtype not in (torch.half, torch.bfloat16)):
            raise RuntimeError("out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs")
        return product(*(tensor.to(dtype) for tensor in tensors), **kwargs)

    return in_dtype


def _into(kernel: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same with a tensor for its result."""

    def into(*args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        return out.copy_(kernel(*args, **kwargs))

    return into


def _lu_factor(matrix: torch.Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[torch.Tensor, ...]:
    """LU factors in one tensor, without exchanging rows."""
    rows, columns = matrix.shape[-2:]
    packed, steps = matrix.clone(), min(rows, columns)
    for k in range(steps):
        packed[..., k + 1 :, k] /= packed[..., k, k, None]
        packed[..., k + 1 :, k + 1 :] -= packed[..., k + 1 :, k, None] * packed[..., k, None, k + 1 :]
    batch = matrix.shape[:-2]
    pivots = torch.arange(1, steps + 1, dtype=torch.int32).expand(*batch, steps).contiguous()
    zeros = packed.diagonal(dim1=-2, dim2=-1) == 0
    first = zeros.int().argmax(-1) + 1 if steps else torch.zeros(batch)
    return packed, pivots, torch.where(zeros.any(-1), first, 0).to(torch.int32)


def _lu(matrix: torch.Tensor, *, pivot: bool = True) -> tuple[torch.Tensor, ...]:
    """The factors apart; without exchanges there is no permutation."""
    packed, _, _ = _lu_factor(matrix)
    rows, columns = matrix.shape[-2:]
    steps = min(rows, columns)
    lower = packed[..., :, :steps].tril(-1) + torch.eye(rows, steps, dtype=packed.dtype)
    return matrix.new_empty(0), lower, packed[..., :steps, :].triu()


def _nansum(tensor: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> torch.Tensor:
    """Complex numbers too."""
    found: torch.Tensor = aten.sum(tensor.masked_fill(tensor.isnan(), 0), dim, keepdim, dtype=dtype)
    return found


def _narrow_copy(tensor: torch.Tensor, dim: int, start: int, length: int) -> torch.Tensor:
    """A copy of a part: the CPU has a kernel of its own, which words errors in its own way."""
    return tensor.narrow(dim, start, length).clone(memory_format=torch.contiguous_format)


INSTEAD: dict[str, Callable[..., Any]] = {"narrow_copy": _narrow_copy}
"""Operators for which GPUs have none but this form, though the CPU has a kernel."""
_PRODUCTS = {
    "mm.dtype": _in_dtype(aten.mm, 2),
    "bmm.dtype": _in_dtype(aten.bmm, 2),
    "addmm.dtype": _in_dtype(aten.addmm, 3),
    "baddbmm.dtype": _in_dtype(aten.baddbmm, 3),
}
KERNELS: dict[str, Callable[..., Any]] = {
    **_PRODUCTS,
    **{f"{name}_out": _into(kernel) for name, kernel in _PRODUCTS.items()},
    "nansum": _nansum,
    "linalg_lu_factor_ex": _lu_factor,
    "linalg_lu": _lu,
}
"""By the operator's name."""
