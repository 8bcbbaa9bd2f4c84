"""The mode that every operator passes through: it follows labels from arguments to results, backward included.

A part for tensors without values has one of its own; a thread that outlives its simulation keeps the one it has, at rest.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.patching.mode_stack import DispatchMode, EndedDispatchMode, redispatch
from devwidget.capture.patching.operator_key import key_threads
from devwidget.gpus import errors as cuda_errors
from devwidget.gpus import labels, rule_table
from devwidget.gpus import operators as propagate
from devwidget.gpus.labels import CPU, DEVICES, LABELS, TEMPORARY, storage_id
from devwidget.gpus.machine import Machine
from devwidget.gpus.op_schema import OpSchema
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.torch_internals import OpOverload, TensorBase, tree_leaves

_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
STRIDED = torch.strided
layout_of: Callable[[torch.Tensor], torch.layout] = TensorBase.layout.__get__
"""Read without `__torch_function__`."""
SCHEMAS: dict[int, tuple[OpSchema, OpOverload]] = {}
"""By the ids of the operators, which are kept beside: their hash would be a call of Python code."""


def read_schema(func: OpOverload) -> tuple[OpSchema, OpOverload]:
    """Read the schema of an operator that comes for the first time."""
    return SCHEMAS.setdefault(id(func), (rule_table.schema_of(func), func))


def _label_if_strided(value: Any) -> int | None:
    """The label of a tensor with a storage for results to share, TEMPORARY if it is not plain; None for anything else.

    A plain one that has a storage is strided; to ask for the layout of one would be a call for the function modes of a
    recording, which are active in backward.
    """
    if type(value) is _Tensor or type(value) is _Parameter:
        try:
            return LABELS.get(storage_id(value), CPU)
        except NotImplementedError:
            pass
    return TEMPORARY if isinstance(value, torch.Tensor) and layout_of(value) is STRIDED else None


def _after_fork() -> None:
    """In a child that was forked after its parent had used a GPU, tensors on GPUs are of no use."""
    if Machine.is_forked:
        # In the child alone: a check in the mode itself would cost every operator of every program.
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

    def switch_below(self, on: bool) -> None:
        """Let what the mode has entered besides itself rest, or go on."""

    def _insert_mode(self, stack: list[DispatchMode]) -> int:
        """Below the modes of a recording: they are to see where results are."""
        return next((place for place, each in enumerate(stack) if not isinstance(each, VirtualMode)), len(stack))

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator on real tensors and say where its results are."""
        schema, _ = SCHEMAS.get(id(func)) or read_schema(func)
        if schema.passive:
            if schema.views_first and args:
                label = _label_if_strided(args[0])
                if label is None:
                    return propagate.run_without_storage(func, args, kwargs)
                asked = key_threads.place.asked
                if asked is not None and asked[0] is args and label >= 0:
                    asked[1] = DEVICES[label]  # a view is where its base is
            return redispatch(func, args, kwargs)
        if schema.take_apart is not None:
            run_parts = schema.take_apart(schema, func, args, kwargs)
            if run_parts is not None:
                # A mode is off while it handles an operator: entered again, it sees the parts.
                with self:
                    return run_parts(*args, **kwargs)
        if schema.special is not None:
            return schema.special(schema, func, args, kwargs)
        return propagate.run_operator(schema, func, args, kwargs)


class _AtRest(DispatchMode):
    """The mode of a thread that has outlived its simulation.

    Attributes:
        kind: what it was, and becomes again in a simulation of the same kind.
    """

    kind: type[VirtualMode]
    __torch_dispatch__ = EndedDispatchMode.__torch_dispatch__


def deactivate_mode(mode: Any) -> None:
    """The simulation is over: the mode of a thread that goes on does nothing."""
    if not isinstance(mode, VirtualMode):
        return  # it has been at rest since a simulation before that one
    mode.switch_below(False)
    at_rest: Any = mode
    # Only its own thread could take the mode off its stack, so here it becomes one that does nothing.
    at_rest.kind, at_rest.__class__ = type(mode), _AtRest


def reactivate_mode(mode: Any) -> None:
    """A simulation has begun: threads of an earlier one belong to it, unless only one of both has values."""
    if isinstance(mode, _AtRest) and mode.kind is _kind_of_mode():
        woken: Any = mode
        woken.__class__ = mode.kind
        woken.switch_below(True)


def new_mode() -> Any:
    """The mode of the running simulation, for one thread."""
    return _kind_of_mode()()


def _kind_of_mode() -> type[VirtualMode]:
    return SimulationState.values.mode or VirtualMode
