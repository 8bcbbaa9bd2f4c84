"""Recurrent layers as cuDNN runs them: the tensors it takes, its casts under autocast, gradients that it cannot compute."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.functional import linear
from torch.overrides import handle_torch_function, has_torch_function

from devwidget.capture.recording.births import TensorRef
from devwidget.gpus import autocast, labels
from devwidget.gpus.labels import TEMPORARY, device_of, inside
from devwidget.gpus.patching import Patches
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.torch_internals import VariableFunctions, functions, functorch, graph_task

NAMES = ("lstm", "gru", "rnn_tanh", "rnn_relu")
CUDNN_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
TRAINING_ONLY = "cudnn RNN backward can only be called in training mode"
FIRST_DERIVATIVE_ONLY = (
    "the derivative for '_cudnn_rnn_backward' is not implemented. Double backwards is not supported for CuDNN RNNs due to "
    "limitations in the CuDNN API. To run double backwards, please disable the CuDNN backend temporarily while running the "
    "forward pass of your RNN. For example: \nwith torch.backends.cudnn.flags(enabled=False):\n    output = model(inputs)"
)


def install(patches: Patches) -> None:
    """Put the checks in front of the layers."""
    for name in NAMES:
        wrapped = check_recurrent(getattr(VariableFunctions, name))
        patches.set(torch, name, wrapped)
        # `nn.LSTM` and its kin call the one in `_VF`.
        patches.set(functions, name, getattr(torch, name))


def check_recurrent(original: Callable[..., Any]) -> Callable[..., Any]:
    """A recurrent layer that compares devices first. Source: `check_attributes` in `RNN.cpp`."""

    @functools.wraps(original)
    def run_checked(given: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if has_torch_function((given,)):
            return handle_torch_function(getattr(torch, original.__name__), (given,), given, *args, **kwargs)
        packed = (
            isinstance(args[0], torch.Tensor)
            and isinstance(args[1], (torch.Tensor, tuple, list))
            and isinstance(args[2], (tuple, list))
        )
        sizes, (hidden, weights, *rest) = args[:packed], args[packed:]
        for kind, tensors in (("hidden", hidden), ("parameter", weights)):
            _check_same_as_input(given, tensors, kind)
        if labels.label_of(given) < 0:
            return original(given, *args, **kwargs)
        by_cudnn = _is_run_by_cudnn(given)
        with _casts_of_autocast(by_cudnn) as cast:
            given, hidden, weights = cast(given), cast(hidden), cast(weights)
            if by_cudnn:
                _check_hidden(hidden)
            multiply = _multiply_in_cudnn if by_cudnn else linear
            run = SimulationState.values.run_recurrent
            results = run(original, multiply, given, sizes, hidden, weights, *rest, **kwargs)
        if by_cudnn:
            train = kwargs["train"] if "train" in kwargs else rest[3]
            _limit_gradients(results, (given, *_as_tuple(hidden), *weights), train)
        return results

    return run_checked


def _check_same_as_input(given: torch.Tensor, others: Any, kind: str) -> None:
    own = labels.label_of(given)
    for other in _as_tuple(others):
        if labels.label_of(other) not in (own, TEMPORARY) and own != TEMPORARY:
            raise RuntimeError(
                f"Input and {kind} tensors are not at the same device, found input tensor at {device_of(given)} "
                f"and {kind} tensor at {device_of(other)}"
            )


def _check_hidden(hidden: Any) -> None:
    """Source: `_cudnn_rnn` in `RNN.cpp` of cuDNN's kernels."""
    for name, tensor in zip(("hx", "cx"), _as_tuple(hidden), strict=False):
        if not tensor.is_contiguous():
            raise RuntimeError(f"rnn: {name} is not contiguous")


def _as_tuple(hidden: Any) -> tuple[torch.Tensor, ...]:
    return tuple(hidden) if isinstance(hidden, (list, tuple)) else (hidden,)


def _multiply_in_cudnn(given: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """A product inside a layer of cuDNN, which takes no workspace of cuBLAS for it, nor in backward."""
    inside.cudnn += 1
    try:
        product = linear(given, weight, bias)
    finally:
        inside.cudnn -= 1
    outside = {*(tensor.grad_fn for tensor in (given, weight, bias) if tensor is not None)}
    nodes = [product.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in outside:
            continue
        if "mmbackward" in node.name().lower():
            node.register_prehook(_enter_product)
            node.register_hook(_leave_product)
        nodes += [following for following, _ in node.next_functions]
    return product


def _enter_product(gradients: Any) -> None:
    inside.cudnn_backward = graph_task()


def _leave_product(gradients: Any, gradients_of_result: Any) -> None:
    inside.cudnn_backward = -1


def _is_run_by_cudnn(given: torch.Tensor) -> bool:
    """Source: `use_cudnn` in `RNN.cpp`, `cudnn_is_acceptable` in `TensorProperties.cpp`."""
    return torch.backends.cudnn.enabled and given.dtype in CUDNN_TYPES and given.numel() > 0


@contextlib.contextmanager
def _casts_of_autocast(by_cudnn: bool) -> Iterator[Callable[[Any], Any]]:
    """What autocast does to the tensors of a layer, which is then one operator for it.

    cuDNN's is cast to float16 whatever the dtype of autocast is. Source: `AutocastRNN.cpp`.
    """
    if not torch.is_autocast_enabled("cuda"):
        yield lambda value: value
        return
    dtype = torch.float16 if by_cudnn else torch.get_autocast_dtype("cuda")
    with torch.autocast("cuda", enabled=False):
        yield functools.partial(autocast.cast_tensors, autocast.choose_dtype(dtype))


def _limit_gradients(results: tuple[torch.Tensor, ...], sources: tuple[torch.Tensor, ...], train: bool) -> None:
    """Refuse what cuDNN cannot differentiate: a layer in evaluation, and gradients of gradients."""
    nodes = {result.grad_fn for result in results if result.grad_fn is not None}
    if not nodes or functorch.peek_interpreter_stack() is not None:
        return
    # Weak: hooks are there as long as the loss, and the input of a layer is free after backward.
    hook = functools.partial(_mark_gradients, [TensorRef(source) for source in sources]) if train else _refuse_backward
    for node in nodes:
        node.register_prehook(hook)


def _refuse_backward(gradients: tuple[torch.Tensor | None, ...]) -> None:
    raise RuntimeError(TRAINING_ONLY)


def _mark_gradients(sources: list[TensorRef], gradients: tuple[torch.Tensor | None, ...]) -> Any:
    """The gradients that enter a layer, through which no others can be computed; only for `create_graph=True`."""
    if not torch.is_grad_enabled():
        return None
    there = [tensor for tensor in (source() for source in sources) if tensor is not None and tensor.requires_grad]
    mark: Any = _FirstDerivative.apply
    return tuple(None if each is None else mark(each, *there) for each in gradients)


class _FirstDerivative(torch.autograd.Function):
    """A gradient that depends on the inputs of its layer, in a way that nobody knows."""

    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, *sources: torch.Tensor) -> torch.Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise NotImplementedError(FIRST_DERIVATIVE_ONLY)
