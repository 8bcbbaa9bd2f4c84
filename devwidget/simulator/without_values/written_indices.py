"""Lists of numbers in an index, `x[:, [-1, 0]]`: C++ would make tensors without values of them, so they are made before."""

from __future__ import annotations

from typing import Any

import torch

from devwidget.capture.patching.mode_stack import FunctionMode

_WITH_KEY = ("__getitem__", "__setitem__")


class WrittenIndices(FunctionMode):
    """A mode, because a `__getitem__` in Python on the class would make every tensor a sequence to C++ for good."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call any function of torch."""
        if getattr(func, "__name__", "") in _WITH_KEY:
            args = (args[0], _written(args[1]), *args[2:])
        return func(*args, **(kwargs or {}))


def _written(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_written, key))
    is_array = hasattr(key, "__array__") and not isinstance(key, torch.Tensor) and getattr(key, "ndim", 0) > 0
    is_list = isinstance(key, list) and key and all(isinstance(part, (int, bool)) for part in key)
    return torch.as_tensor(key) if is_array or is_list else key
