"""Settings of torch that a step may change: modes of this thread, default dtype and device, flags of the backends."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from devwidget.capture import torch_internals
from devwidget.capture.devices import awake_module, set_default_device
from devwidget.capture.patching.global_hooks import OUR_KEY, GlobalHook
from devwidget.capture.restore.settings import Switch
from devwidget.records.device import KINDS

FLAGS = (
    "autograd_fallback_mode", "backcompat_broadcast_warn", "backcompat_keepdim_warn", "blas_preferred_backend",
    "cpu_allow_fp16_reduced_precision_reduction", "cublas_allow_bf16_reduced_precision_reduction",
    "cublas_allow_fp16_accumulation", "cublas_allow_fp16_reduced_precision_reduction", "cublas_allow_tf32",
    "cudnn_allow_tf32", "cudnn_benchmark", "cudnn_depthwise_kernel", "cudnn_deterministic", "cudnn_enabled",
    "deterministic_fill_uninitialized_memory", "dtensor_allow_implicit_replication", "float32_matmul_precision",
    "graph_executor_optimize", "linalg_preferred_backend", "math_sdp_allow_fp16_bf16_reduction", "miopen_immediate",
    "mkldnn_deterministic", "mkldnn_enabled", "nnpack_enabled", "onednn_allow_tf32", "qengine",
    "rocm_fa_preferred_backend", "sdp_priority_order", "sm_carveout_experimental", "warnAlways",
)  # fmt: skip
"""Of `torch.backends` and beside it. Read in C++: the Python properties warn, and refuse to be set when frozen."""
PRECISIONS = (
    ("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"),
    ("mkldnn", "all"), ("mkldnn", "matmul"), ("mkldnn", "conv"), ("mkldnn", "rnn"),
)  # fmt: skip
"""Backends and operations whose float32 may be computed with fewer bits; what is for all comes first."""
HOOKS = (
    *("backward_pre_hooks", "backward_hooks", "forward_pre_hooks", "forward_hooks", "forward_hooks_always_called"),
    *("forward_hooks_with_kwargs", "buffer_registration_hooks", "module_registration_hooks", "parameter_registration_hooks"),
)
"""Tables of hooks of all modules."""
_ATTENTION = ("cudnn", "fa3", "flash", "math", "mem_efficient", "overrideable")
_held: list[Any] = []
"""What ends an inference mode that was left on; the mode would come back with the end of its object."""


@functools.cache
def torch_settings() -> tuple[Switch, ...]:
    """Every one of them, those first that all undoing needs."""
    return *_switches_anywhere(), *_switches_here()


MODES = 2
"""So many of the first are modes of this thread, which objects that end while all is put back may switch again."""
NOT_ELSEWHERE = "current GPU", "number of threads"


def switches_now() -> dict[str, Any]:
    """How the switches stand, for another process."""
    found = {}
    for word, read, _ in _switches_anywhere():
        with contextlib.suppress(Exception):  # as above
            found[word] = read()
    return {word: value for word, value in found.items() if word not in NOT_ELSEWHERE}


def set_switches(values: dict[str, Any]) -> None:
    """Switch as they stood in another process."""
    for word, read, write in _switches_anywhere():
        if word in values and read() != values[word]:
            write(values[word])


def _switches_anywhere() -> Iterator[Switch]:
    """Settings that are numbers and texts, and so can be sent to another process."""
    yield Switch("inference mode", torch.is_inference_mode_enabled, _set_inference)
    yield Switch("grad mode", torch.is_grad_enabled, torch_internals.set_grad_enabled)
    yield Switch("default dtype", torch.get_default_dtype, torch.set_default_dtype)
    yield Switch("default device", _default_device, set_default_device)
    yield Switch("number of threads", torch.get_num_threads, torch.set_num_threads)
    yield Switch("deterministic algorithms", _read_deterministic, _set_deterministic)
    yield Switch("anomaly detection", _read_anomaly, lambda kept: torch.set_anomaly_enabled(*kept))
    yield Switch("threads of autograd", torch_internals.is_multithreading_enabled, torch_internals.set_multithreading_enabled)
    yield Switch("current GPU", _current_gpu, _set_current_gpu)
    for device in dict.fromkeys(("cpu", *KINDS, "ipu", "xla")):
        yield Switch(
            f"autocast on {device}", functools.partial(_autocast_switch, device), functools.partial(_set_autocast, device)
        )
    yield Switch("autocast's cache", torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled)
    yield Switch("flushing of denormal numbers", _flushes_denormal, torch.set_flush_denormal)
    yield Switch("printing", _print_options, lambda kept: vars(torch_internals.print_options).update(kept))
    for name in FLAGS:
        yield Switch(name, *_pair_functions(f"_get_{name}", f"_set_{name}"))
    for name in _ATTENTION:
        yield Switch(f"{name} attention", *_pair_functions(f"_get_{name}_sdp_enabled", f"_set_sdp_use_{name}"))
    for backend, operation in PRECISIONS:  # last: each sets the flags of old with it, which may refuse to be read then
        yield Switch(f"precision of {backend} {operation}", *_precision_switch(backend, operation))


def _switches_here() -> Iterator[Switch]:
    """Settings that cannot be sent to another process, or mean nothing there."""
    for reader, writer in torch_internals.FLAG_PAIRS:
        yield Switch(reader, *_pair_functions(reader, writer))
    yield Switch("depth of autocast", autocast_depth, _set_autocast_depth)
    for owner, names in ((modules, HOOKS), (optimizers, ("optimizer_pre_hooks", "optimizer_post_hooks"))):
        for name in names:
            yield Switch(f"global {name}", *_hooks_switch(vars(owner), f"_global_{name}"))


def _precision_switch(backend: str, operation: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    reader, writer = torch_internals.PRECISION_PAIR
    return lambda: getattr(torch_internals.C, reader)(backend, operation), lambda value: getattr(torch_internals.C, writer)(
        backend, operation, value
    )


def _hooks_switch(owner: dict[str, Any], name: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """A table of hooks without those of recordings, which come and go in other threads too."""

    def read() -> dict[Any, Any]:
        return {key: hook for key, hook in list(owner[name].items()) if key != OUR_KEY and not isinstance(hook, GlobalHook)}

    def write(kept: dict[Any, Any]) -> None:
        for key in read().keys() - kept.keys():
            del owner[name][key]
        owner[name].update(kept)

    return read, write


def _flushes_denormal() -> bool:
    """Torch does not tell, but Python computes in the same mode."""
    return sys.float_info.min / 2 == 0.0


def _print_options() -> dict[str, Any]:
    return dict(vars(torch_internals.print_options))


def autocast_depth() -> int:
    """Only when the outermost region ends its casts are forgotten."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def leave_autocast() -> None:
    """Switch autocast off for all devices, as outside of every region; whoever has kept the settings puts it back."""
    for device in ("cpu", *KINDS):
        if _autocast_switch(device)[0]:
            torch.set_autocast_enabled(device, False)
    _set_autocast_depth(0)


def _set_autocast_depth(depth: int) -> None:
    while autocast_depth() > depth:
        torch.autocast_decrement_nesting()
    while autocast_depth() < depth:
        torch.autocast_increment_nesting()


def _pair_functions(read: str, write: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """What reads and what sets a setting of torch's C, looked up at each call: not every build has them all."""

    def set_again(value: Any) -> None:
        getattr(torch_internals.C, write)(*(value if type(value) is tuple else (value,)))

    return lambda: getattr(torch_internals.C, read)(), set_again


def _set_inference(mode: bool) -> None:
    guard: Any = torch_internals.InferenceMode(mode)
    guard.__enter__()
    _held.append(guard)


def _default_device() -> torch.device | None:
    """None is not the same as "cpu": it costs nothing."""
    context = getattr(torch_internals.default_device, "device_context", None)
    return None if context is None else context.device


def _read_deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(kept: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(kept[0], warn_only=kept[1])


def _read_anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _current_gpu() -> int | None:
    module = awake_module()
    return None if module is None else module.current_device()


def _set_current_gpu(index: int | None) -> None:
    """Make a GPU the current one, unless GPUs have begun or gone since: that is no setting to put back."""
    module = awake_module()
    if module is not None and index is not None:
        module.set_device(index)


def _autocast_switch(device: str) -> tuple[bool, torch.dtype]:
    return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)


def _set_autocast(device: str, kept: tuple[bool, torch.dtype]) -> None:
    enabled, dtype = kept
    torch.set_autocast_enabled(device, enabled)
    torch.set_autocast_dtype(device, dtype)
