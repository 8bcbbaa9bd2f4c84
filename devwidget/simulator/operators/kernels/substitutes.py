"""Kernels that GPUs have and the CPU lacks for a dtype: computed in a wider dtype, and rounded back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from devwidget.records.errors import message
from devwidget.simulator.devices import cuda_errors
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.operators.kernels import dtype_rules, gpu_kernels
from devwidget.simulator.operators.op_schema import OpSchema
from devwidget.simulator.torch_internals import DisableTorchFunction, OpOverload, tree_map

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


_NO_MEMORY = re.compile(r"you tried to allocate (\d+) bytes")


def run(
    schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], target: Any, error: RuntimeError
) -> Any:
    """The result of an operator for which the CPU has no kernel.

    Raises:
        RuntimeError: the error of the CPU's kernel in the words of the GPU, if it is about anything else.
    """
    if (asked := _NO_MEMORY.search(message(error))) and isinstance(target, int):
        raise cuda_errors.out_of_memory(target, int(asked[1]), SimulationState.ledger) from None
    kernel: Callable[..., Any] = func
    if gpu_kernels.is_wanted(error):
        if schema.name not in gpu_kernels.KERNELS:
            raise gpu_kernels.refusal(func._schema.name) from None
        kernel = gpu_kernels.KERNELS[schema.name]
        try:
            return kernel(*args, **kwargs)
        except RuntimeError as further:
            error = further
    wider = _wider(schema, message(error))
    if wider is None:
        raise cuda_errors.in_device_words(error) from None
    return _widened(schema, kernel, args, kwargs, wider)


def _wider(schema: OpSchema, text: str) -> dict[torch.dtype, torch.dtype] | None:
    """Which dtypes take the place of the one that a kernel lacks; None if GPUs have no kernel either."""
    found = _MISSING.search(text)
    if found is None or _NOT_ON_GPUS.search(schema.name):
        return None
    kind = found[1] or found[2]
    return None if kind == "ComplexHalf" and schema.base not in COMPLEX_HALF else WIDER.get(kind)


def _widened(
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
        given, wide = schema.bound(args, kwargs), schema.bound(wide_args, wide_kwargs)
        written = [given[name].copy_(wide[name]) for name in schema.written if isinstance(given.get(name), torch.Tensor)]
    return result if schema.fresh or not written else written[0] if len(written) == 1 else tuple(written)
