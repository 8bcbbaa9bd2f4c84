"""Higher-order operators, such as `torch.cond` and `flex_attention`: run as the Python that they mean, where all is seen.

Unwatched, torch compiles the functions that they are given, and runs them below autograd, where no mode of ours may be.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.patching.registry import patched
from devwidget.capture.recording.state import State
from devwidget.capture.undo import Undo
from devwidget.records.schema.message import Message

Kernel = Callable[..., Any]
NOTE = Message(
    "{kind}: {reason}",
    kind="torch.cond",
    reason=Message(
        "only the branch that is taken ran; a tensor that the other one alone uses has no gradient, "
        "where it has one of zeros unwatched"
    ),
)


def higher_order(state: State | None, undo: Undo) -> None:
    """Have operators that are given functions call them in plain sight, above autograd."""
    said = state.log.note if state is not None else None
    undo.enter(patched(torch_internals.HigherOrderOperator, "__call__", functools.partial(_in_sight, said)))


def _in_sight(said: Callable[[str], None] | None, original: Callable[..., Any]) -> Callable[..., Any]:
    def __call__(self: torch_internals.HigherOrderOperator, /, *args: Any, **kwargs: Any) -> Any:
        kernel = _kernel(self)
        leaves = torch_internals.arg_tree_leaves(*args, **kwargs)
        is_plain = not (_is_transformed() or torch.overrides.has_torch_function(leaves))
        if kernel is None or not is_plain or not any(map(_is_function, leaves)):
            return original(self, *args, **kwargs)
        out = kernel(*args, **kwargs)
        if kernel is _cond and said is not None and _has_gradient(out):
            said(NOTE)
        return out

    return __call__


def _has_gradient(out: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in torch_internals.arg_tree_leaves(out))


def take_apart(
    mode: torch_internals.TorchDispatchMode, func: torch_internals.HigherOrderOperator, args: tuple[Any, ...], kwargs: Any
) -> Any:
    """Run an operator that has come down to a mode of ours, with the mode active for all that is in it."""
    kernel = _kernel(func)
    if kernel is None or _is_transformed():
        return func(*args, **(kwargs or {}))  # for the modes beneath, which trace it or run it on fake tensors
    with mode:
        return kernel(*args, **(kwargs or {}))


def _is_function(leaf: Any) -> bool:
    return callable(leaf) and not isinstance(leaf, (torch.Tensor, torch_internals.OperatorBase))


def _is_transformed() -> bool:
    """Whether somebody else has a rule for operators here: a mode of the user's, a tracer, or `torch.func`."""
    foreign = (mode for mode in torch_internals.dispatch_modes() if not type(mode).__module__.startswith("devwidget."))
    return torch_internals.functorch_interpreter() is not None or any(True for _ in foreign)


def _kernel(operator: torch_internals.HigherOrderOperator) -> Kernel | None:
    """What an operator means; torch's own kernels of some refuse to run while any mode is active."""
    return _MEANINGS.get(operator.__name__) or operator.py_kernels.get(torch_internals.DispatchKey.CompositeExplicitAutograd)


def _cond(pred: Any, true_fn: Kernel, false_fn: Kernel, operands: Any) -> Any:
    return true_fn(*operands) if pred else false_fn(*operands)


def _scan(combine_fn: Kernel, init: Any, xs: Any, additional_inputs: Any = ()) -> Any:
    return torch_internals.generic_scan(combine_fn, init, xs, additional_inputs=additional_inputs)


def _strict(body: Kernel, operands: Any) -> Any:
    return body(*operands)


def _call(subgraph: Kernel, *operands: Any, **options: Any) -> Any:
    return subgraph(list(operands)) if getattr(subgraph, "_boxed_call", False) else subgraph(*operands)


def _invoke(subgraph: Kernel, identifier: str, *operands: Any) -> Any:
    return _call(subgraph, *operands)


_MEANINGS: dict[str, Kernel] = {
    "cond": _cond, "scan": _scan, "invoke_subgraph": _invoke, "strict_mode": _strict,
    "foreach_map": _call, "invoke_quant": _call, "invoke_quant_packed": _call,
}  # fmt: skip
