"""Kernels that GPUs have and the CPU lacks for a dtype: computed in a wider dtype, and rounded back."""

from __future__ import annotations

import re
from typing import Any

import torch

from devwidget.records.errors import message
from devwidget.simulator.devices import cuda_errors
from devwidget.simulator.torch_internals import DisableTorchFunction, OpOverload, tree_map

WIDER = {"Half": torch.float32, "BFloat16": torch.float32, "Int": torch.float64, "Long": torch.float64, "Byte": torch.float64,
         "Char": torch.float64, "Short": torch.float64, "ComplexHalf": torch.complex64}  # fmt: skip
NARROW = {"Half": torch.float16, "BFloat16": torch.bfloat16, "Int": torch.int32, "Long": torch.int64, "Byte": torch.uint8,
          "Char": torch.int8, "Short": torch.int16, "ComplexHalf": torch.complex32}  # fmt: skip
_NOT_ON_GPUS = re.compile(r"linalg|cholesky|inverse|^lu_|triangular_solve|ormqr|geqrf|svd|_eig|_cdist")
"""GPUs have no kernel for low precision either. Source: the dtypes of these operators in torch's op_db."""
_MISSING = re.compile(r"not implemented for \'(\w+)\'")


def run(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> Any:
    """The result of an operator whose CPU kernel does not know the dtype.

    Raises:
        Exception: the error of the CPU kernel, if it is another one.
    """
    found = _MISSING.search(message(error))
    if found is None or found[1] not in WIDER:
        raise error
    if _NOT_ON_GPUS.search(func._schema.name.removeprefix("aten::")):
        raise cuda_errors.in_device_words(error)
    wide, narrow = WIDER[found[1]], NARROW[found[1]]

    def widen(value: Any) -> Any:
        return value.to(wide) if isinstance(value, torch.Tensor) and value.dtype == narrow else value

    def round_back(value: Any) -> Any:
        return value.to(narrow) if isinstance(value, torch.Tensor) and value.dtype == wide else value

    with DisableTorchFunction():
        args, kwargs = tree_map(widen, (args, kwargs))
        return tree_map(round_back, func(*args, **kwargs))
