"""Sums of gradients, laid out as autograd's engine leaves them.

The engine adds the gradients that meet at a node in place if nobody else holds the first one or its storage (`accumulate` in
`input_buffer.cpp`). A label holds the storage, so that here a new tensor is made: of the same numbers, but a dimension of size
one may get another stride than the first gradient has, and kernels choose their way by strides.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch

from devwidget.capture.patching.mode_stack import DispatchMode, redispatch, without_any_dispatch_mode
from devwidget.capture.patching.operator_key import above_autograd, hide_from_modes
from devwidget.simulator.operators import propagate
from devwidget.simulator.operators.op_schema import OpSchema
from devwidget.simulator.torch_internals import DisableTorchFunction, OpOverload, graph_task, storage_holders

Holders = tuple[int, int]
"""How many in C++ and in Python hold a tensor."""


def add_gradients(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`aten::add.Tensor`."""
    # Before the operator runs: its own calls hold the tensor too.
    is_alone = graph_task() >= 0 and not torch.is_grad_enabled() and _is_alone(args)
    result = propagate.run_operator(schema, func, args, kwargs)
    if not is_alone or not _is_laid_out_otherwise(args[0], result):
        return result
    target, _ = propagate.find_target(schema, args, kwargs)
    if target < 0:
        return result
    with hide_from_modes():
        strided = torch.ops.aten.new_empty_strided.default(result, result.shape, args[0].stride()).copy_(result)
    propagate.label_results(strided, target)
    return strided


def _is_alone(args: tuple[Any, ...]) -> bool:
    """Whether the engine would add in place but for the label: it alone holds the first tensor, and its storage."""
    if type(args[0]) is not torch.Tensor or _count_holders(args) != _holders_of_lone():
        return False
    with DisableTorchFunction():  # the modes of a recording are active in backward
        if args[0].layout is not torch.strided:
            return False
        return bool(storage_holders(args[0].untyped_storage()._cdata) == 2)  # the tensor, and Python


def _count_holders(args: tuple[Any, ...]) -> Holders:
    return args[0]._use_count(), sys.getrefcount(args[0])


# The counts differ between versions of Python and of torch, so they are measured and not written down.
@functools.cache
def _holders_of_lone() -> Holders:
    """As many as hold the first tensor of a sum that the engine makes in place, on its way through a mode."""
    with DisableTorchFunction(), above_autograd(), without_any_dispatch_mode(), torch.enable_grad(), _Probe() as probe:
        leaf = torch.ones(1, requires_grad=True)
        met = leaf * 1
        torch.autograd.grad([met * 2, met * 3], leaf, [torch.ones(1), torch.ones(1)])
    holders: Holders = probe.holders
    return holders


class _Probe(DispatchMode):
    holders: Holders = (0, 0)

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is torch.ops.aten.add_.Tensor:
            self.holders = _count_holders(args)
        return redispatch(func, args, kwargs)


def _is_laid_out_otherwise(first: torch.Tensor, result: torch.Tensor) -> bool:
    with DisableTorchFunction():
        if result.layout is not torch.strided or first.stride() == result.stride():
            return False
        return first.shape == result.shape and first.dtype == result.dtype and _is_dense(first)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether each place of its memory has one element (`is_non_overlapping_and_dense`)."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1):
        if stride != expected:
            return False
        expected *= size
    return True
