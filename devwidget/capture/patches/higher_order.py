"""Run higher-order operators, such as `torch.cond` and `flex_attention`, as the Python code that they mean.

Without a recording, torch compiles the functions that they take and runs them below autograd, where devwidget's modes cannot
be.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.patching import operator_key
from devwidget.capture.patching.mode_stack import dispatch_modes, without_dispatch_modes
from devwidget.capture.patching.registry import everywhere, listen
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.tensors import tensors_in
from devwidget.capture.undo import Undo
from devwidget.records.schema.message import Message

Kernel = Callable[..., Any]
NOTE = Message(
    "{kind}: {reason}",
    kind="torch.cond",
    reason=Message(
        "only the taken branch ran; a tensor used only by the other branch has no gradient, "
        "instead of zeros as without a recording"
    ),
)


def higher_order(state: RecordingState | None, undo: Undo) -> None:
    """Make operators that take functions call them above autograd."""
    is_here: Callable[[], object] = dispatch_modes if state is None else state.is_here
    operator = torch_internals.HigherOrderOperator
    listen(is_here, operator, "__call__", functools.partial(_call_in_sight, state), undo)
    listen(everywhere, operator, "dispatch", _dispatch_in_python, undo)


def _call_in_sight(
    state: RecordingState | None,
    original: Callable[..., Any],
    self: torch_internals.HigherOrderOperator,
    /,
    *args: Any,
    **kwargs: Any,
) -> Any:
    kernel = _find_kernel(self)
    leaves = torch_internals.arg_tree_leaves(*args, **kwargs)
    # Other code may have a rule for operators here: a mode of the user's, a tracer, or `torch.func`.
    is_transformed = torch_internals.functorch_interpreter() is not None or torch_internals.dispatch_modes()
    is_plain = not is_transformed and not torch.overrides.has_torch_function(leaves)
    if kernel is None or not is_plain or not any(map(_is_function, leaves)):
        return original(self, *args, **kwargs)
    out = kernel(*args, **kwargs)
    if kernel is _run_cond and state is not None and any(tensor.requires_grad for tensor in tensors_in(out)):
        state.log.add_note(NOTE)
    return out


def _dispatch_in_python(
    original: Callable[..., Any], self: torch_internals.HigherOrderOperator, /, dispatch_key: Any, *args: Any, **kwargs: Any
) -> Any:
    """Run an operator without a kernel for our modes' key as Python, whose operators pass through the modes."""
    if dispatch_key != operator_key.KEY:
        return original(self, dispatch_key, *args, **kwargs)
    kernel = _find_kernel(self)
    if kernel is not None:
        return kernel(*args, **kwargs)
    with without_dispatch_modes(lambda mode: True):
        return self(*args, **kwargs)


def _is_function(leaf: Any) -> bool:
    return callable(leaf) and not isinstance(leaf, (torch.Tensor, torch_internals.OperatorBase))


def _find_kernel(operator: torch_internals.HigherOrderOperator) -> Kernel | None:
    """Return what an operator means. Some of torch's own kernels refuse to run while any mode is active."""
    meaning = _MEANINGS.get(operator.__name__)
    if meaning is _run_scan and torch_internals.generic_scan is None:
        meaning = None
    return meaning or operator.py_kernels.get(torch_internals.DispatchKey.CompositeExplicitAutograd)


def _run_cond(pred: Any, true_fn: Kernel, false_fn: Kernel, operands: Any) -> Any:
    if pred:
        return true_fn(*operands)
    return false_fn(*operands)


def _run_scan(combine_fn: Kernel, init: Any, xs: Any, additional_inputs: Any = ()) -> Any:
    return torch_internals.generic_scan(combine_fn, init, xs, additional_inputs=additional_inputs)


def _invoke_subgraph(subgraph: Kernel, identifier: str, *operands: Any) -> Any:
    if getattr(subgraph, "_boxed_call", False):
        return subgraph(list(operands))
    return subgraph(*operands)


_MEANINGS: dict[str, Kernel] = {"cond": _run_cond, "scan": _run_scan, "invoke_subgraph": _invoke_subgraph}
