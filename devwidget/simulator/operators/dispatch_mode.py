"""The mode that every operator passes through: it follows labels from arguments to results, backward included."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.patching.mode_stack import DispatchMode, redispatch
from devwidget.simulator.devices import cuda_errors, labels
from devwidget.simulator.devices.machine import Machine
from devwidget.simulator.operators import propagate, rule_table
from devwidget.simulator.operators.op_schema import OpSchema
from devwidget.simulator.torch_internals import OpOverload, TensorBase, tree_leaves

STRIDED = torch.strided
layout_of: Callable[[torch.Tensor], torch.layout] = TensorBase.layout.__get__
"""Read without `__torch_function__`."""
SCHEMAS: dict[OpOverload, OpSchema] = {}


def _after_fork() -> None:
    """In a child that was forked after its parent had used a GPU, tensors on GPUs are of no use."""
    if Machine.is_forked:
        VirtualMode.__torch_dispatch__ = _without_gpus(VirtualMode.__torch_dispatch__)  # type: ignore[method-assign]


def _without_gpus(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __torch_dispatch__(self: Any, func: Any, args: Any, kwargs: Any) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if Machine.is_forked and any(labels.label_of(tensor) >= 0 for tensor in tensors):
            raise cuda_errors.lost_by_fork()
        return original(self, func, args, kwargs)

    return __torch_dispatch__


os.register_at_fork(after_in_child=_after_fork)


class VirtualMode(DispatchMode):
    """One per thread; all of them share the labels."""

    def _place(self, stack: list[DispatchMode]) -> int:
        """Below the modes of a recording: they are to see where results are."""
        return next((place for place, each in enumerate(stack) if not isinstance(each, VirtualMode)), len(stack))

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator on real tensors and say where its results are."""
        schema = SCHEMAS.get(func) or SCHEMAS.setdefault(func, rule_table.schema_of(func))
        if schema.passive:
            if schema.views_first and args and not (isinstance(args[0], torch.Tensor) and layout_of(args[0]) is STRIDED):
                return propagate.run_without_storage(func, args, kwargs)
            return redispatch(func, args, kwargs)
        if schema.special is not None:
            if schema.special is not rule_table.decompose:
                return schema.special(schema, func, args, kwargs)
            if not any(isinstance(arg, torch.Tensor) and arg.is_nested for arg in args):  # those have kernels of their own
                with self:
                    return func.decompose(*args, **kwargs)
        return propagate.run(schema, func, args, kwargs)
