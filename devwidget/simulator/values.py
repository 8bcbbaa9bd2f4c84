"""Which tensors keep their values when a simulation has none: small whole numbers, such as positions, lengths and steps.

Programs decide by them where to go next; models are made of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from devwidget.simulator import internals
from devwidget.simulator.labels import CPU_DEVICE, META_DEVICE, Books
from devwidget.simulator.valueless_kernels import INSTEAD

MOST_ELEMENTS = 4096
"""So few that even all pairs of them take little memory."""
_is_meta: Callable[[torch.Tensor], bool] = internals.base.is_meta.__get__


def keep_values(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether an operator on these tensors is to be computed."""
    count = 0
    for tensor in tensors:
        if _is_meta(tensor):
            return False
        count += tensor.numel()
    return count <= 2 * MOST_ELEMENTS


def without_values(tensor: torch.Tensor) -> torch.Tensor:
    """A meta tensor in place of a real one."""
    if _is_meta(tensor) or tensor.layout != torch.strided:
        return tensor
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        return torch.empty_strided(
            tensor.size(), tensor.stride(), dtype=tensor.dtype, device=META_DEVICE, requires_grad=tensor.requires_grad
        )


def call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator with values if all its tensors keep theirs, else without."""
    if keep_values(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)):
        return func(*args, **kwargs)
    bare_args, bare_kwargs = tree_map_only(torch.Tensor, without_values, (args, kwargs))
    result = INSTEAD.get(func, func)(*bare_args, **bare_kwargs)
    # An in-place operation must return the tensor that it was given.
    return args[0] if bare_args and result is bare_args[0] else result


def small(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where it is small, else one without values."""
    return tensor if Books.compute or tensor.numel() <= MOST_ELEMENTS else without_values(tensor)


def create(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], on_meta: bool) -> Any:
    """Call a factory for the device that stands for all others.

    Args:
        func: the operator.
        args: its arguments.
        kwargs: its keywords, without a device.
        on_meta: the user asked for meta.
    """
    if Books.compute:
        return func(*args, **kwargs)
    bare = tree_map_only(torch.Tensor, without_values, args)
    result = func(*bare, **{**kwargs, "device": META_DEVICE})
    if on_meta or not isinstance(result, torch.Tensor) or result.numel() > MOST_ELEMENTS:
        return result
    given = [value for value in args if isinstance(value, torch.Tensor)]
    if result.dtype.is_floating_point or result.dtype.is_complex or not keep_values(given):
        return result
    return func(*args, **{**kwargs, "device": CPU_DEVICE})
