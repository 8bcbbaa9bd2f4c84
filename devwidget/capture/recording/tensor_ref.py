"""Weak references to tensors that are known as ours: torch refuses to swap tensors that anybody else refers to."""

from __future__ import annotations

import weakref
from typing import Any

from torch.utils.weak import WeakIdRef


class TensorRef(weakref.ref[Any]):
    """Of a tensor or a storage."""

    __slots__ = ()


class TensorKeyRef(WeakIdRef):
    """Of a tensor that is a key."""

    __slots__ = ()


OURS = (TensorRef, TensorKeyRef)
