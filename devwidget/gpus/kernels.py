"""Kernels that GPUs have and the CPU lacks, at all or for a dtype: made of others, computed in a wider dtype, or refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from devwidget.gpus import batch_norm_kernels, dtype_rules
from devwidget.gpus import errors as cuda_errors
from devwidget.gpus.op_schema import OpSchema
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.torch_internals import DisableTorchFunction, OpOverload, tree_map
from devwidget.records.errors import SimulationError, message
from devwidget.records.schema.message import Message

aten: Any = torch.ops.aten
_SVD = "_linalg_svd"


class NoKernel(SimulationError, NotImplementedError):
    """An operator that only GPUs have; a program that can do without it catches what CUDA would raise."""


_NOWHERE = ("Could not run 'aten::", "from the 'CPU' backend")
_LACKS = ("not implemented on the CPU", "on CPU does not support")


def is_kernel_missing(error: RuntimeError) -> bool:
    """Whether the CPU says that it has no kernel at all."""
    text = message(error)
    return all(words in text for words in _NOWHERE) or any(words in text for words in _LACKS)


def refuse_kernel(name: str) -> NoKernel:
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


def _write_into(kernel: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
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


def _lu_factors(matrix: torch.Tensor, *, pivot: bool = True) -> tuple[torch.Tensor, ...]:
    """The factors apart; without exchanges there is no permutation."""
    packed, _, _ = _lu_factor(matrix)
    rows, columns = matrix.shape[-2:]
    steps = min(rows, columns)
    lower = packed[..., :, :steps].tril(-1) + torch.eye(rows, steps, dtype=packed.dtype)
    return matrix.new_empty(0), lower, packed[..., :steps, :].triu()


def _sum_without_nan(tensor: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> torch.Tensor:
    """Complex numbers too."""
    found: torch.Tensor = aten.sum(tensor.masked_fill(tensor.isnan(), 0), dim, keepdim, dtype=dtype)
    return found


def _narrow_copy(tensor: torch.Tensor, dim: int, start: int, length: int) -> torch.Tensor:
    """A copy of a part: the CPU has a kernel of its own, which words errors in its own way."""
    return tensor.narrow(dim, start, length).clone(memory_format=torch.contiguous_format)


def _decompose_by_driver(matrix: torch.Tensor, *args: Any, driver: str | None = None, **kwargs: Any) -> Any:
    """Singular values by the CPU's one way, whichever of cuSOLVER's is named.

    Source: `svd_cusolver` in `BatchLinearAlgebraLib.cpp`.
    """
    if driver not in (None, "gesvd", "gesvdj", "gesvda"):
        raise RuntimeError(
            f"torch.linalg.svd: unknown svd driver {driver} in svd_cusolver computation. "
            "Check doc at https://pytorch.org/docs/stable/generated/torch.linalg.svd.html"
        )
    decompose = getattr(aten, _SVD)
    return (decompose.U if "U" in kwargs else decompose.default)(matrix, *args, **kwargs)


def _sample_grid(image: torch.Tensor, grid: torch.Tensor, *args: Any) -> torch.Tensor:
    """Halves are summed in single precision; the CPU's kernel computes in halves. Source: `GridSampler.cu`."""
    if image.dtype not in WIDER["Half"] or grid.dtype != image.dtype:
        return aten.grid_sampler_2d.default(image, grid, *args)  # type: ignore[no-any-return]
    found: torch.Tensor = aten.grid_sampler_2d.default(image.float(), grid.float(), *args)
    return found.to(image.dtype)


def _soften_halves(name: str) -> Callable[..., torch.Tensor | None]:
    """Softmax with a result in single precision. Source: `host_softmax` in `SoftMax.cu`."""

    kernel = getattr(aten, name)

    def soften(tensor: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor | None:
        return kernel(tensor.float(), dim, False) if half_to_float else None

    return soften


def _narrow_gradient(name: str) -> Callable[..., torch.Tensor | None]:
    """Its gradient, which is in half precision again. Source: `softmax_backward_cuda_out` in `SoftMax.cu`."""

    kernel = getattr(aten, name)

    def go_back(gradient: torch.Tensor, output: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor | None:
        return None if gradient.dtype == dtype else kernel(gradient, output, dim, gradient.dtype).to(dtype)

    return go_back


GPU_FORMS: dict[str, Callable[..., Any]] = {
    "_softmax": _soften_halves("_softmax"),
    "_log_softmax": _soften_halves("_log_softmax"),
    "_softmax_backward_data": _narrow_gradient("_softmax_backward_data"),
    "_log_softmax_backward_data": _narrow_gradient("_log_softmax_backward_data"),
    "narrow_copy": _narrow_copy,
    "grid_sampler_2d": _sample_grid,
    **dict.fromkeys((_SVD, f"{_SVD}.U"), _decompose_by_driver),
}
"""Operators for which GPUs have none but this form, though the CPU has a kernel; None where that does the same."""
_PRODUCTS = {
    "mm.dtype": _in_dtype(aten.mm, 2),
    "bmm.dtype": _in_dtype(aten.bmm, 2),
    "addmm.dtype": _in_dtype(aten.addmm, 3),
    "baddbmm.dtype": _in_dtype(aten.baddbmm, 3),
}
KERNELS: dict[str, Callable[..., Any]] = {
    **_PRODUCTS,
    **{f"{name}_out": _write_into(kernel) for name, kernel in _PRODUCTS.items()},
    **batch_norm_kernels.KERNELS,
    "nansum": _sum_without_nan,
    "linalg_lu_factor_ex": _lu_factor,
    "linalg_lu": _lu_factors,
}
"""By the operator's name."""


_HALF = {torch.float16: torch.float32, torch.complex32: torch.complex64}
_INTEGERS = {"Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8}
WIDER = {
    "Half": _HALF,
    "ComplexHalf": _HALF,
    "BFloat16": {torch.bfloat16: torch.float32},
    **{name: {dtype: torch.float64} for name, dtype in _INTEGERS.items()},
}
"""As a kernel names the dtype that it lacks -> what takes the place of that and its like."""
COMPLEX_HALF = set(dtype_rules.COMPLEX_HALF.split())
"""The operators that GPUs have for complex numbers in half precision: few, and the CPU has hardly any."""
_NOT_ON_GPUS = re.compile(r"linalg|cholesky|inverse|^lu_|triangular_solve|ormqr|geqrf|svd|_eig|_cdist")
"""GPUs have no kernel for low precision either. Source: the dtypes of these operators in torch's op_db."""
_MISSING = re.compile(r"not implemented for \'(\w+)\'|Unsupported dtype (\w+)")


BY_ZERO = "ZeroDivisionError"
"""As the CPU speaks of whole numbers."""
_NO_MEMORY = re.compile(r"you tried to allocate (\d+) bytes")


def run_substitute(
    schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], target: Any, error: RuntimeError
) -> Any:
    """The result of an operator for which the CPU has no kernel.

    Raises:
        RuntimeError: the error of the CPU's kernel in the words of the GPU, if it is about anything else.
    """
    if (asked := _NO_MEMORY.search(message(error))) and isinstance(target, int):
        raise cuda_errors.out_of_memory(target, int(asked[1]), SimulationState.ledger) from None
    if message(error) == BY_ZERO:
        return divide_by_zero(schema, func, args, kwargs)
    kernel: Callable[..., Any] = func
    if is_kernel_missing(error):
        if schema.name not in KERNELS:
            raise refuse_kernel(func._schema.name) from None
        kernel = KERNELS[schema.name]
        try:
            return kernel(*args, **kwargs)
        except RuntimeError as further:
            error = further
    wider = _find_wider(schema, message(error))
    if wider is None:
        raise cuda_errors.in_device_words(error) from None
    return _run_widened(schema, kernel, args, kwargs, wider)


def _find_wider(schema: OpSchema, text: str) -> dict[torch.dtype, torch.dtype] | None:
    """Which dtypes take the place of the one that a kernel lacks; None if GPUs have no kernel either."""
    found = _MISSING.search(text)
    if found is None or _NOT_ON_GPUS.search(schema.name):
        return None
    kind = found[1] or found[2]
    if kind == "Bool" and schema.name in ("median", "nanmedian"):  # sorted there, which orders these too
        return {torch.bool: torch.uint8}
    return None if kind == "ComplexHalf" and schema.base not in COMPLEX_HALF else WIDER.get(kind)


def _run_widened(
    schema: OpSchema,
    kernel: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    wider: dict[torch.dtype, torch.dtype],
) -> Any:
    narrower = {wide: narrow for narrow, wide in wider.items()}

    def cast(value: Any, dtypes: dict[torch.dtype, torch.dtype]) -> Any:
        return value.to(dtypes[value.dtype]) if isinstance(value, torch.Tensor) and value.dtype in dtypes else value

    with DisableTorchFunction():
        wide_args, wide_kwargs = tree_map(lambda value: cast(value, wider), (args, kwargs))
        result = tree_map(lambda value: cast(value, narrower), kernel(*wide_args, **wide_kwargs))
        given, wide = schema.bind_args(args, kwargs), schema.bind_args(wide_args, wide_kwargs)
        written = [given[name].copy_(wide[name]) for name in schema.written if isinstance(given.get(name), torch.Tensor)]
    return result if schema.fresh or not written else written[0] if len(written) == 1 else tuple(written)


DIVISIONS = re.compile(r"(floor_divide|fmod|remainder)_?($|\.)|div_?\..*_mode$")
"""Those of whole numbers, by their names with the overload."""


def has_zero_divisor(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a division is one of whole numbers, some of them by zero."""
    given = schema.bind_args(args, kwargs)
    dividend, divisor = _as_tensors(given)
    is_whole = not any(part.is_floating_point() or part.is_complex() for part in (dividend, divisor))
    return is_whole and bool((divisor == 0).any())


def divide_by_zero(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """Whole numbers by zero are no error on a GPU: all bits of the result are one, or half of them for remainders of int64.

    Nothing promises these numbers. Source: `test_fmod_remainder_by_zero_integral` in torch's `test_binary_ufuncs.py`.
    """
    if not SimulationState.compute:
        return SimulationState.values.call_for_shape(func, args, kwargs)  # type: ignore[no-any-return]
    given = schema.bind_args(args, kwargs)
    dividend, divisor = _as_tensors(given)
    is_zero, is_negative = divisor == 0, dividend < 0
    whole = divisor.masked_fill(is_zero, 1)
    given["other"] = whole if isinstance(given["other"], torch.Tensor) else whole.item()
    result: torch.Tensor = func(**given)
    if result.dtype == torch.int64 and schema.base in ("remainder", "fmod"):
        result.masked_fill_(is_zero & ~is_negative, (1 << 32) - 1)
        is_zero = is_zero & is_negative
    return result.masked_fill_(is_zero, -1 if result.dtype.is_signed else torch.iinfo(result.dtype).max)


def _as_tensors(given: dict[str, Any]) -> list[torch.Tensor]:
    parts = (given["self"], given["other"])
    return [part if isinstance(part, torch.Tensor) else torch.tensor(part) for part in parts]
