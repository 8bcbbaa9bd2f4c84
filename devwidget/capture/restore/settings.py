"""Switches of torch that a step may turn: modes of this thread, default dtype and device, flags of the backends."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.devices.visible import awake_module, kind_here
from devwidget.capture.restore.undoing import Step
from devwidget.records.device import KINDS

_FLAGS = (
    "cublas_allow_bf16_reduced_precision_reduction", "cublas_allow_fp16_accumulation",
    "cublas_allow_fp16_reduced_precision_reduction", "cublas_allow_tf32", "cudnn_allow_tf32", "cudnn_benchmark",
    "cudnn_deterministic", "cudnn_enabled", "deterministic_fill_uninitialized_memory", "float32_matmul_precision",
    "math_sdp_allow_fp16_bf16_reduction", "miopen_immediate", "mkldnn_deterministic", "mkldnn_enabled", "nnpack_enabled",
    "onednn_allow_tf32", "qengine", "warnAlways",
)  # fmt: skip
"""Of `torch.backends` and beside it. Read in C++: the Python properties warn, and refuse to be set when frozen."""
_ATTENTION = ("cudnn", "flash", "math", "mem_efficient", "overrideable")
_held: list[Any] = []
"""What ends an inference mode that was left on; the mode would come back with the end of its object."""


def switches() -> Iterator[Step]:
    """Undo of every switch that a step may have turned."""
    for word, read, write in _all_switches():
        try:
            before = read()
        except Exception:  # this build of torch, or this mixture of old and new flags, does not tell
            continue
        yield word, _Switch(read, write, before).put_back


NOT_ELSEWHERE = "current GPU", "number of threads"


def switches_now() -> dict[str, Any]:
    """How the switches stand, for another process."""
    found = {}
    for word, read, _ in _all_switches():
        with contextlib.suppress(Exception):  # as above
            found[word] = read()
    return {word: value for word, value in found.items() if word not in NOT_ELSEWHERE}


def set_switches(values: dict[str, Any]) -> None:
    """Switch as they stood in another process."""
    for word, read, write in _all_switches():
        if word in values and read() != values[word]:
            write(values[word])


class _Switch:
    def __init__(self, read: Callable[[], Any], write: Callable[[Any], Any], before: Any) -> None:
        self._read, self._write, self._before = read, write, before

    def put_back(self) -> None:
        if self._read() != self._before:
            self._write(self._before)


def _all_switches() -> Iterator[tuple[str, Callable[[], Any], Callable[[Any], Any]]]:
    yield "inference mode", torch.is_inference_mode_enabled, _set_inference
    yield "grad mode", torch.is_grad_enabled, torch_internals.set_grad_enabled
    yield "default dtype", torch.get_default_dtype, torch.set_default_dtype
    yield "default device", _default_device, torch.set_default_device
    yield "number of threads", torch.get_num_threads, torch.set_num_threads
    yield "deterministic algorithms", _deterministic, _set_deterministic
    yield "anomaly detection", _anomaly, lambda kept: torch.set_anomaly_enabled(*kept)
    yield "threads of autograd", torch_internals.is_multithreading_enabled, torch_internals.set_multithreading_enabled
    yield "current GPU", _current_gpu, lambda index: torch.get_device_module(kind_here()).set_device(index)
    for device in ("cpu", *KINDS):
        yield f"autocast on {device}", functools.partial(_autocast, device), functools.partial(_cast, device)
    yield "autocast's cache", torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled
    for name in _FLAGS:
        yield name, *_pair(f"_get_{name}", f"_set_{name}")
    for name in _ATTENTION:
        yield f"{name} attention", *_pair(f"_get_{name}_sdp_enabled", f"_set_sdp_use_{name}")


def _pair(read: str, write: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """By name and late, because not every build has them all."""
    return lambda: getattr(torch_internals.C, read)(), lambda value: getattr(torch_internals.C, write)(value)


def _set_inference(mode: bool) -> None:
    guard: Any = torch_internals.InferenceMode(mode)
    guard.__enter__()
    _held.append(guard)


def _default_device() -> torch.device | None:
    """None is not the same as "cpu": it costs nothing."""
    context = getattr(torch_internals.default_device, "device_context", None)
    return None if context is None else context.device


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(kept: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(kept[0], warn_only=kept[1])


def _anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _current_gpu() -> int | None:
    module = awake_module()
    return None if module is None else module.current_device()


def _autocast(device: str) -> tuple[bool, torch.dtype]:
    return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)


def _cast(device: str, kept: tuple[bool, torch.dtype]) -> None:
    enabled, dtype = kept
    torch.set_autocast_enabled(device, enabled)
    torch.set_autocast_dtype(device, dtype)
