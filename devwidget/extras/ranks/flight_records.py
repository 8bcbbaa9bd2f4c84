"""Fields of an entry of torch's flight recorder, in this process and in a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

# By the words of the recorder; what else there is takes one byte.
_ITEM_BYTES = {"ComplexDouble": 16, "Double": 8, "Long": 8, "ComplexFloat": 8, "Float": 4, "Int": 4}
_ITEM_BYTES |= {"Half": 2, "BFloat16": 2, "Short": 2}


def find_kind(profiling_name: str) -> str:
    """Return `all_reduce` for `nccl:all_reduce`."""
    return profiling_name.rpartition(":")[2]


def count_bytes(shapes: Iterable[Sequence[int]], dtypes: Iterable[str]) -> int:
    """Return the bytes of the tensors that a rank passes."""
    return sum(math.prod(shape) * _ITEM_BYTES.get(dtype, 1) for shape, dtype in zip(shapes, dtypes, strict=False))
