"""The mode that every operator passes through: it follows labels from arguments to results, backward included."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.patches.higher_order import take_apart
from devwidget.capture.patching.mode_stack import DispatchMode, push_below, redispatch
from devwidget.simulator.devices import cuda_errors, labels
from devwidget.simulator.devices.machine import Machine
from devwidget.simulator.operators import propagate, rule_table, tracing
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
    def __torch_dispatch__(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if Machine.is_forked and any(labels.label_of(tensor) >= 0 for tensor in tensors):
            raise cuda_errors.lost_by_fork()
        return original(self, func, types, args, kwargs)

    return __torch_dispatch__


os.register_at_fork(after_in_child=_after_fork)


class VirtualMode(DispatchMode):  # type: ignore[no-untyped-call]
    """One per thread; all of them share the labels."""

    supports_higher_order_operators = True

    def _push(self) -> None:
        """Below the modes of a recording: they are to see where results are."""
        push_below(self, lambda mode: isinstance(mode, DispatchMode) and not isinstance(mode, VirtualMode))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operator on real tensors and say where its results are."""
        if types not in tracing.ORDINARY or tracing.modes_beneath():
            answer = tracing.run(self, func, types, args, kwargs)
            if answer is not tracing.NOT_THEIRS:
                return answer
        schema = SCHEMAS.get(func)
        if schema is None:
            if not isinstance(func, OpOverload):
                return take_apart(self, func, args, kwargs)
            schema = SCHEMAS[func] = rule_table.schema_of(func)
        if schema.passive:
            if schema.views_first and args and not (isinstance(args[0], torch.Tensor) and layout_of(args[0]) is STRIDED):
                return propagate.run_without_storage(func, args, kwargs or {})
            return redispatch(func, types, args, kwargs)
        if kwargs is None:
            kwargs = {}
        if schema.special is not None:
            if schema.special is not rule_table.decompose:
                return schema.special(schema, func, args, kwargs)
            if not any(isinstance(arg, torch.Tensor) and arg.is_nested for arg in args):  # those have kernels of their own
                with self:
                    return func.decompose(*args, **kwargs)
        return propagate.run(schema, func, args, kwargs)
