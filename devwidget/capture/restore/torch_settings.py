"""Settings of torch that a step may change: modes of this thread, default dtype and device, flags of the backends."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.devices import awake_module, set_default_device
from devwidget.capture.restore.settings import Switch
from devwidget.records.device import KINDS

FLAGS = (
    "cublas_allow_bf16_reduced_precision_reduction", "cublas_allow_fp16_reduced_precision_reduction", "cublas_allow_tf32",
    "cudnn_allow_tf32", "cudnn_benchmark", "cudnn_deterministic", "cudnn_enabled", "float32_matmul_precision",
)  # fmt: skip
"""Flags of `torch.backends` and others. Read in C++: the Python properties warn, and refuse to be set when frozen."""
PRECISIONS = (("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"))
"""Backends and operations whose float32 may use fewer bits. General ones come first."""
_held: list[Any] = []
"""Ends an inference mode that was left on. The mode would return when its object is freed."""


@functools.cache
def torch_settings() -> tuple[Switch, ...]:
    """Return all settings. The first ones are needed to undo the others."""
    return *_switches_anywhere(), Switch("depth of autocast", autocast_depth, _set_autocast_depth)


NOT_ELSEWHERE = "current GPU", "number of threads"


def switches_now() -> dict[str, Any]:
    """Return the state of the switches, for another process."""
    found = {}
    for word, read, _ in _switches_anywhere():
        with contextlib.suppress(Exception):  # as above
            found[word] = read()
    return {word: value for word, value in found.items() if word not in NOT_ELSEWHERE}


def set_switches(values: dict[str, Any]) -> None:
    """Set the switches to their state in another process."""
    for word, read, write in _switches_anywhere():
        if word in values and read() != values[word]:
            write(values[word])


def _switches_anywhere() -> Iterator[Switch]:
    """Yield settings that are numbers and texts, which can be sent to another process."""
    yield Switch("inference mode", torch.is_inference_mode_enabled, _set_inference)
    yield Switch("grad mode", torch.is_grad_enabled, torch_internals.set_grad_enabled)
    yield Switch("default dtype", torch.get_default_dtype, torch.set_default_dtype)
    yield Switch("default device", _default_device, set_default_device)
    yield Switch("number of threads", torch.get_num_threads, torch.set_num_threads)
    yield Switch("deterministic algorithms", _read_deterministic, _set_deterministic)
    yield Switch("current GPU", _current_gpu, _set_current_gpu)
    for device in ("cpu", *KINDS):
        yield Switch(
            f"autocast on {device}", functools.partial(_autocast_switch, device), functools.partial(_set_autocast, device)
        )
    for name in FLAGS:
        yield Switch(name, *_pair_functions(f"_get_{name}", f"_set_{name}"))
    for backend, operation in PRECISIONS:  # last: each sets the flags of old with it, which may refuse to be read then
        yield Switch(
            f"precision of {backend} {operation}", *_pair_functions(*torch_internals.PRECISION_PAIR, backend, operation)
        )


def autocast_depth() -> int:
    """Return the autocast depth. Casts are cached until the outermost region ends."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def leave_autocast() -> None:
    """Switch autocast off for all devices, as outside of every region. The saved settings restore it."""
    for device in ("cpu", *KINDS):
        if _autocast_switch(device)[0]:
            torch.set_autocast_enabled(device, False)
    _set_autocast_depth(0)


def _set_autocast_depth(depth: int) -> None:
    while autocast_depth() > depth:
        torch.autocast_decrement_nesting()
    while autocast_depth() < depth:
        torch.autocast_increment_nesting()


def _pair_functions(read: str, write: str, *which: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return the getter and setter of a setting in torch's C module, looked up at each call: not every build has them all."""

    def set_again(value: Any) -> None:
        getattr(torch_internals.C, write)(*which, *(value if type(value) is tuple else (value,)))

    return lambda: getattr(torch_internals.C, read)(*which), set_again


def _set_inference(mode: bool) -> None:
    guard: Any = torch_internals.InferenceMode(mode)
    guard.__enter__()
    _held.append(guard)


def _default_device() -> torch.device | None:
    """Return the default device. None differs from "cpu": it costs nothing."""
    context = getattr(torch_internals.default_device, "device_context", None)
    return None if context is None else context.device


def _read_deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(kept: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(kept[0], warn_only=kept[1])


def _current_gpu() -> int | None:
    module = awake_module()
    return None if module is None else module.current_device()


def _set_current_gpu(index: int | None) -> None:
    """Make a GPU the current one, unless GPUs were started or removed since."""
    module = awake_module()
    if module is not None and index is not None:
        module.set_device(index)


def _autocast_switch(device: str) -> tuple[bool, torch.dtype]:
    return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)


def _set_autocast(device: str, kept: tuple[bool, torch.dtype]) -> None:
    enabled, dtype = kept
    torch.set_autocast_enabled(device, enabled)
    torch.set_autocast_dtype(device, dtype)
