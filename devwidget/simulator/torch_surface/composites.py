"""Checks that C++ makes before any operator is dispatched: recurrent layers, attention, grouping for optimizers."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function

from devwidget.simulator.devices import labels
from devwidget.simulator.devices.labels import TEMPORARY, device_of
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.patching import Patches
from devwidget.simulator.torch_internals import VariableFunctions, functions, locate_name
from devwidget.simulator.without_values import known_values, meta_kernels

SAME_DEVICE = {
    "meshgrid": "torch.meshgrid expects all tensors to have the same device",
    "stft": "stft input and window must be on the same device but got self on {0} and window on {1}",
    "istft": "istft input and window must be on the same device but got self on {0} and window on {1}",
}
LOW = (torch.float16, torch.bfloat16)
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def install(patches: Patches) -> None:
    """Put the checks in front of the functions."""
    for name in RECURRENT:
        wrapped = checked_recurrent(getattr(VariableFunctions, name))
        patches.set(torch, name, wrapped)
        patches.set(functions, name, getattr(torch, name))
    attention = checked_attention(getattr(*locate_name("attention")))
    patches.set(*locate_name("attention"), attention)
    patches.set(torch.nn.functional, "scaled_dot_product_attention", getattr(*locate_name("attention")))
    for name, text in SAME_DEVICE.items():
        wrapped = checked_equal(getattr(VariableFunctions, name), text)
        patches.set(functions, name, wrapped)
        if not isinstance(getattr(torch, name), types.FunctionType):  # else torch's Python function calls the one in _VF
            patches.set(torch, name, wrapped)
    patches.wrap(torch, "ctc_loss", beside_log_probs)
    patches.set(*locate_name("group_tensors"), group_by_device_and_dtype)


def checked_recurrent(original: Callable[..., Any]) -> Callable[..., Any]:
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
        hidden, weights = (args[1], args[2]) if packed else (args[0], args[1])
        for kind, tensors in (("parameter", weights), ("hidden", hidden)):
            _same_as_input(given, tensors, kind)
        if SimulationState.compute or labels.label_of(given) < 0:
            return original(given, *args, **kwargs)
        sizes = args[0].tolist() if packed else None
        states = tuple(hidden) if isinstance(hidden, (list, tuple)) else (hidden,)
        return meta_kernels.run_recurrent(
            original.__name__, given, sizes, states, weights, *args[3 if packed else 2 :], **kwargs
        )

    return run_checked


def _same_as_input(given: torch.Tensor, others: Any, kind: str) -> None:
    own = labels.label_of(given)
    for other in others if isinstance(others, (list, tuple)) else (others,):
        if labels.label_of(other) not in (own, TEMPORARY) and own != TEMPORARY:
            raise RuntimeError(
                f"Input and {kind} tensors are not at the same device, found input tensor at {device_of(given)} "
                f"and {kind} tensor at {device_of(other)}"
            )


def checked_equal(original: Callable[..., Any], text: str) -> Callable[..., Any]:
    """A function that wants all its tensors on one device."""

    @functools.wraps(original)
    def checked(*args: Any, **kwargs: Any) -> Any:
        tensors = [tensor for value in (*args, *kwargs.values()) for tensor in _tensors(value)]
        if has_torch_function(tensors):
            return handle_torch_function(getattr(torch, original.__name__), tensors, *args, **kwargs)
        for tensor in tensors[1:]:
            if labels.label_of(tensor) != labels.label_of(tensors[0]):
                raise RuntimeError(text.format(device_of(tensors[0]), device_of(tensor)))
        return original(*args, **kwargs)

    return checked


def _tensors(value: Any) -> list[torch.Tensor]:
    known_values = value if isinstance(value, (list, tuple)) else [value]
    return [tensor for tensor in known_values if isinstance(tensor, torch.Tensor)]


def beside_log_probs(original: Callable[..., Any]) -> Callable[..., Any]:
    """`ctc_loss` moves targets and lengths to where it needs them. Source: `LossCTC.cpp`."""

    @functools.wraps(original)
    def ctc_loss(log_probs: torch.Tensor, targets: Any, input_lengths: Any, target_lengths: Any, *args: Any, **kw: Any) -> Any:
        given = (targets, input_lengths, target_lengths)
        if has_torch_function((log_probs, *given)):
            return handle_torch_function(torch.ctc_loss, (log_probs, *given), log_probs, *given, *args, **kw)
        device = device_of(log_probs)
        if not SimulationState.compute:  # lengths are read behind the modes' back
            given = (
                targets,
                *(known_values.list_numbers(lengths, "`ctc_loss`") for lengths in (input_lengths, target_lengths)),
            )
        moved = (part.to(device) if isinstance(part, torch.Tensor) else part for part in given)
        return original(log_probs, *moved, *args, **kw)

    return ctc_loss


def checked_attention(original: Callable[..., Any]) -> Callable[..., Any]:
    """Attention that compares devices first. Source: `validate_sdpa_input` in `attention.cpp`."""

    @functools.wraps(original)
    def scaled_dot_product_attention(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        if has_torch_function((query, key, value)):
            public = getattr(*locate_name("attention"))  # as which tensor classes know it
            return handle_torch_function(public, (query, key, value), query, key, value, *args, **kwargs)
        here = [labels.label_of(tensor) for tensor in (query, key, value)]
        if len(set(here)) > 1 and TEMPORARY not in here:
            raise RuntimeError(
                "Expected query, key, and value to have the same device type, but got "
                f"query.device: {device_of(query)} key.device: {device_of(key)} and value.device: {device_of(value)} instead."
            )
        fused = None if SimulationState.compute else meta_kernels.fused_attention(query, key, value, *args, **kwargs)
        if fused is not None:
            return fused
        with fused_by_math(query) if here[0] >= 0 else contextlib.nullcontext():
            return original(query, key, value, *args, **kwargs)

    return scaled_dot_product_attention


@contextlib.contextmanager
def fused_by_math(query: torch.Tensor) -> Iterator[None]:
    """A GPU's fused kernels, where the user allows no others: the CPU computes the same by its own.

    Raises:
        RuntimeError: if the fused kernels that are allowed do not know the dtype. Source: `sdp_utils.cpp`.
    """
    backends: Any = torch.backends.cuda
    if backends.math_sdp_enabled():
        yield
        return
    has_low = query.dtype in LOW and (backends.flash_sdp_enabled() or backends.cudnn_sdp_enabled())
    if not has_low and not (backends.mem_efficient_sdp_enabled() and query.dtype in (torch.float32, *LOW)):
        raise RuntimeError("No available kernel. Aborting execution.")
    backends.enable_math_sdp(True)
    try:
        yield
    finally:
        backends.enable_math_sdp(False)


def group_by_device_and_dtype(lists: Sequence[Sequence[Any]], with_indices: bool = False) -> dict[Any, Any]:
    """Optimizers work on groups of tensors of one device. Source: `ForeachUtils.h`.

    Raises:
        RuntimeError: if the tensors that belong to one parameter are on several devices.
    """
    groups: dict[tuple[torch.device, torch.dtype], tuple[list[list[Any]], list[int]]] = {}
    for place, first in enumerate(lists[0]):
        key = (device_of(first), first.dtype)
        group, places = groups.setdefault(key, ([[] for _ in lists], []))
        for number, tensors in enumerate(lists):
            if not tensors:
                continue
            group[number].append(_member(tensors[place], first, key))
        if with_indices:
            places.append(place)
    return groups


def _member(tensor: Any, first: torch.Tensor, key: tuple[torch.device, torch.dtype]) -> Any:
    """A tensor that belongs to the same parameter as `first`; step counts may stay on the CPU."""
    if tensor is None:
        return tensor
    is_step = tensor.dim() == 0 and device_of(tensor).type == "cpu" and tensor.dtype in (torch.float32, torch.float64)
    if device_of(tensor) != key[0] and not is_step:
        raise RuntimeError("Tensors of the same index must be on the same device and the same dtype except `step` tensors "
                           "that can be CPU and float32/64 notwithstanding")  # fmt: skip
    return tensor
