"""The mode that every operator passes through: it follows labels from arguments to results, backward included.

There are two, with values and without; a thread that outlives its simulation keeps its own, at rest.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.patching.mode_stack import DispatchMode, EndedDispatchMode, EndedFunctionMode, FunctionMode, redispatch
from devwidget.capture.patching.operator_key import key_threads
from devwidget.extras.meta import call
from devwidget.gpus.devices import cuda_errors, labels
from devwidget.gpus.devices.labels import CPU, DEVICES, LABELS, TEMPORARY, inside, storage_id
from devwidget.gpus.devices.machine import Machine
from devwidget.gpus.devices.simulation_state import SimulationState
from devwidget.gpus.operators import propagate, rule_table
from devwidget.gpus.operators.op_schema import OpSchema
from devwidget.gpus.torch_internals import DispatchKey, OpOverload, TensorBase, tree_leaves
from devwidget.records.errors import message

_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
STRIDED = torch.strided
EXPLICIT = DispatchKey.CompositeExplicitAutograd
layout_of: Callable[[torch.Tensor], torch.layout] = TensorBase.layout.__get__
"""Read without `__torch_function__`."""
SCHEMAS: dict[int, tuple[OpSchema, OpOverload]] = {}
"""By the ids of the operators, which are kept beside: their hash would be a call of Python code."""


def _read_schema(func: OpOverload) -> tuple[OpSchema, OpOverload]:
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

    def _insert_mode(self, stack: list[DispatchMode]) -> int:
        """Below the modes of a recording: they are to see where results are."""
        return next((place for place, each in enumerate(stack) if not isinstance(each, VirtualMode)), len(stack))

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator on real tensors and say where its results are."""
        schema, _ = SCHEMAS.get(id(func)) or _read_schema(func)
        if schema.passive:
            if schema.views_first and args:
                label = _label_if_strided(args[0])
                if label is None:
                    return propagate.run_without_storage(func, args, kwargs)
                asked = key_threads.place.asked
                if asked is not None and asked[0] is args and label >= 0:
                    asked[1] = DEVICES[label]  # a view is where its base is
            return redispatch(func, args, kwargs)
        if schema.special is not None:
            if schema.special is rule_table.run_foreign and rule_table.runs_parts_in_mode(schema, func, args, kwargs):
                with self:
                    return func._op_dk(EXPLICIT, *args, **kwargs)
            if schema.special is not rule_table.decompose_in_mode:
                return schema.special(schema, func, args, kwargs)
            # Those have kernels of their own.
            if not any(isinstance(arg, torch.Tensor) and arg.is_nested for arg in args):
                # A mode is off while it handles an operator: entered again, it sees the parts.
                with self:
                    return func.decompose(*args, **kwargs)
        return propagate.run_operator(schema, func, args, kwargs)


_WITH_KEY = ("__getitem__", "__setitem__")


class WrittenIndices(FunctionMode):
    """A mode, because a `__getitem__` in Python on the class would make every tensor a sequence to C++ for good."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call any function of torch."""
        if getattr(func, "__name__", "") in _WITH_KEY:
            args = (args[0], _make_index_tensor(args[1]), *args[2:])
        return func(*args, **(kwargs or {}))


def _make_index_tensor(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_make_index_tensor, key))
    is_array = hasattr(key, "__array__") and not isinstance(key, torch.Tensor) and getattr(key, "ndim", 0) > 0
    is_list = isinstance(key, list) and key and all(isinstance(part, (int, bool)) for part in key)
    return torch.as_tensor(key) if is_array or is_list else key


class ModeWithoutValues(VirtualMode):
    """Runs every operator on meta."""

    def __init__(self) -> None:
        self._indices: list[WrittenIndices] = []

    def __enter__(self) -> Any:
        # A stack: `with self` in the handler above enters it again, and each exit takes out its own.
        self._indices.append(WrittenIndices())
        self._indices[-1].__enter__()
        return super().__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        if self._indices:
            self._indices[-1].leave_mode()
            self._indices.pop()
        # `super` asks for the class, which may have ended.
        VirtualMode.__exit__(self, *exc_info)

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator without values.

        Raises:
            SimulationError: if it needs them.
        """
        # Many meta kernels are Python that asks tensors for their device: they must see the real one.
        inside.depth += 1
        try:
            schema, _ = SCHEMAS.get(id(func)) or _read_schema(func)
            if schema.passive:
                return call.call_operator(func, args, kwargs)
            return VirtualMode.__torch_dispatch__(self, func, args, kwargs)  # as above
        except (RuntimeError, NotImplementedError) as error:
            if _is_about_values(error):
                raise cuda_errors.needs_values(f"`{func}`") from error
            raise
        finally:
            inside.depth -= 1


class _AtRest(DispatchMode):
    """The mode of a thread that has outlived its simulation."""

    __torch_dispatch__ = EndedDispatchMode.__torch_dispatch__


class _IndicesAtRest(FunctionMode):
    """Its other one."""

    __torch_function__ = EndedFunctionMode.__torch_function__


def deactivate_mode(mode: VirtualMode) -> None:
    """The simulation is over: the mode of a thread that goes on does nothing."""
    if isinstance(mode, ModeWithoutValues):
        for each in mode._indices:
            each.__class__ = _IndicesAtRest  # type: ignore[assignment]
    # Only its own thread could take the mode off its stack, so here it becomes one that does nothing.
    mode.__class__ = _AtRest  # type: ignore[assignment]


def reactivate_mode(mode: VirtualMode) -> None:
    """A simulation has begun: threads of an earlier one belong to it, unless only one of both has values."""
    indices: list[WrittenIndices] | None = vars(mode).get("_indices")
    if SimulationState.compute and indices is None:
        mode.__class__ = VirtualMode
    elif not SimulationState.compute and indices is not None:
        mode.__class__ = ModeWithoutValues
        for each in indices:
            each.__class__ = WrittenIndices


def new_mode() -> Any:
    """The mode of the running simulation, for one thread."""
    return VirtualMode() if SimulationState.compute else ModeWithoutValues()


def _is_about_values(error: Exception) -> bool:
    text = message(error).lower()
    # What CUDA says too, of tensors that the user put on meta.
    rightful = ("expected device meta", "cannot copy out of meta")
    return "meta" in text and not any(words in text for words in rightful)
