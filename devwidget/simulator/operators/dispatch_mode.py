"""The mode that every operator passes through: it follows labels from arguments to results, backward included."""

from __future__ import annotations

from typing import Any

import torch

from devwidget.capture.patches.higher_order import take_apart
from devwidget.capture.patching.mode_stack import DispatchMode, push_below
from devwidget.simulator.operators import propagate, rule_table, tracing
from devwidget.simulator.operators.op_schema import OpSchema
from devwidget.simulator.torch_internals import OpOverload

SCHEMAS: dict[OpOverload, OpSchema] = {}


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
        if types or tracing.modes_beneath():
            answer = tracing.run(self, func, types, args, kwargs)
            if answer is not tracing.NOT_THEIRS:
                return answer
        schema = SCHEMAS.get(func)
        if schema is None:
            if not isinstance(func, OpOverload):
                return take_apart(self, func, args, kwargs)
            schema = SCHEMAS[func] = rule_table.schema_of(func)
        if schema.passive:
            return func(*args, **kwargs) if kwargs else func(*args)
        if kwargs is None:
            kwargs = {}
        if schema.special is not None:
            if schema.special is not rule_table.decompose:
                return schema.special(schema, func, args, kwargs)
            if not any(isinstance(arg, torch.Tensor) and arg.is_nested for arg in args):  # those have kernels of their own
                with self:
                    return func.decompose(*args, **kwargs)
        return propagate.run(schema, func, args, kwargs)
