"""The surface: all that devwidget may replace, install or switch in a process, to compare before and after."""

from __future__ import annotations

import builtins
import gc
import linecache
import signal
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from concurrent.futures.thread import ThreadPoolExecutor
from typing import Any

import torch
import torch.cuda.graphs
import torch.cuda.nccl
import torch.cuda.nvtx
import torch.cuda.streams
import torch.distributions
import torch.utils._device
import torch.utils.dlpack
from torch.autograd.function import BackwardCFunction
from torch.nn.modules import module as module_hooks
from torch.nn.parallel import _functions, comm, data_parallel, parallel_apply, replicate, scatter_gather
from torch.optim import optimizer as optimizer_hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from devwidget.capture.patching.mode_stack import EndedDispatchMode, EndedFunctionMode, dispatch_modes

Surface = dict[str, dict[Any, Any]]
"""Owner -> name -> the very object."""
_PARTS = (
    "", "Tensor", "_C", "_C._nn", "_VF", "_tensor_str", "accelerator", "autograd", "autograd.Function", "backends.cudnn",
    "cuda", "cuda.Event", "cuda.Stream", "cuda.graphs", "cuda.nccl", "cuda.nvtx", "cuda.streams", "distributions.Distribution",
    "nn.DataParallel", "nn.Module", "nn.functional", "nn.parameter.UninitializedTensorMixin", "optim.Optimizer", "overrides",
    "storage.UntypedStorage", "utils", "utils._device", "utils.dlpack", "utils.hooks.BackwardHook",
)  # fmt: skip
_MODULES = (comm, data_parallel, parallel_apply, replicate, scatter_gather, _python_dispatch, warnings, linecache)
_CLASSES = (
    _functions.Broadcast, _functions.ReduceAddCoalesced, _functions.Scatter, _functions.Gather, BackwardCFunction,
    threading.Thread, ThreadPoolExecutor,
)  # fmt: skip
_REMEMBERED = {
    "_cached_device_count", "__abstractmethods__", "__annotations__", "__warningregistry__", "filters", "_filters_version",
    "onceregistry", "cache", "__slotnames__", "_validate_args", "___needs_generation_tag_patch",
    "___has_generation_tag_patch",
}  # fmt: skip
"""What Python and torch write themselves."""
_HOOKS = {
    f"{owner.__name__}.{name}": table
    for owner in (module_hooks, optimizer_hooks)
    for name, table in vars(owner).items()
    if "_global_" in name and isinstance(table, dict)
}
_ENDED = (EndedFunctionMode, EndedDispatchMode)
"""Modes that do nothing: torch itself may put one back that has ended while it was held for a call."""
_SIGNALS = sorted(signal.valid_signals() - {signal.SIGALRM})
"""But for the alarm of a test's own time limit, which ends with a test that fails."""


def _part(path: str) -> Any:
    found: Any = torch
    for name in filter(None, path.split(".")):
        found = getattr(found, name, None)
    return found


OWNERS = {
    **{f"torch.{path}".strip("."): part for path in _PARTS if (part := _part(path)) is not None},
    **{owner.__name__: owner for owner in _MODULES},
    **{owner.__qualname__: owner for owner in _CLASSES},
}


def surface(*users: type) -> Surface:
    """As it is now.

    Args:
        users: classes of the user's to look at too.
    """
    owners = OWNERS | {user.__qualname__: user for user in users}
    return {
        **{name: dict(vars(owner)) for name, owner in owners.items()},
        **{name: dict(table) for name, table in _HOOKS.items()},
        "function modes": dict(enumerate(each for each in _get_current_function_mode_stack() if not isinstance(each, _ENDED))),
        "dispatch modes": dict(enumerate(_get_current_dispatch_mode_stack())),
        "our dispatch modes": dict(enumerate(each for each in dispatch_modes() if not isinstance(each, _ENDED))),
        "signals": {number: signal.getsignal(number) for number in _SIGNALS},
        "import": dict(enumerate(sys.meta_path)),
        "gc": dict(enumerate([gc.isenabled(), *gc.callbacks])),
        "interpreter": _interpreter(),
        "torch": _torch(),
        "shell": dict(_shell()),
    }


def differences(before: Surface, after: Surface) -> list[tuple[str, Any]]:
    """Owner and name of whatever is not the same object any more; parts of torch that were imported since do not count."""
    return [
        (owner, name)
        for owner in before.keys() | after.keys()
        for name in _changed(before.get(owner, {}), after.get(owner, {}))
    ]


def _changed(before: dict[Any, Any], after: dict[Any, Any]) -> list[Any]:
    if before.keys() == after.keys() and all(map(_same, before.values(), after.values())):
        return []
    missing = object()
    return [
        name
        for name in before.keys() | after.keys()
        if name not in _REMEMBERED
        and not _same(before.get(name, missing), found := after.get(name, missing))
        and not (name not in before and _is_anothers(found))
        and not str(getattr(found, "__module__", "")).startswith("torch._dynamo")
    ]


def _is_anothers(value: Any) -> bool:
    """A part of torch that was imported meanwhile, or what another library adds to torch when it is imported."""
    module = str(getattr(value, "__module__", None) or type(value).__module__)
    return isinstance(value, types.ModuleType) or module.partition(".")[0] not in ("devwidget", "torch", "builtins", "tests")


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) in (types.MethodType, int, float) and type(other) is type(one) and one == other)


def _interpreter() -> dict[str, Any]:
    return {
        "__import__": builtins.__import__,
        "displayhook": sys.displayhook,
        "excepthook": sys.excepthook,
        "profile": sys.getprofile(),
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "thread excepthook": threading.excepthook,
        "thread trace": threading.gettrace(),
        "trace": sys.gettrace(),
        "unraisablehook": sys.unraisablehook,
    }


def _torch() -> dict[str, Any]:
    dynamo: Any = sys.modules.get("torch._dynamo.eval_frame")
    return {
        "anomaly mode": torch.is_anomaly_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast cuda": torch.is_autocast_enabled("cuda"),
        "autograd threads": torch.autograd.is_multithreading_enabled(),
        "compile stance": dynamo._stance.stance if hasattr(dynamo, "_stance") else "default",
        "default dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        **{name: ask() for name, ask in _LATE.items() if ask},
    }


_LATE: dict[str, Any] = {
    "function modes": hasattr(torch._C, "_get_torch_function_state")  # torch 2.6
    and (lambda: int(torch._C._get_torch_function_state())),
    "saved tensors hooks": hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks")
    and (lambda: torch._C._autograd._top_saved_tensors_default_hooks(True)),
}
"""What an older torch does not tell."""


def _shell() -> Iterator[tuple[Any, Any]]:
    """What listens in a notebook."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None else None
    if shell is not None:
        for event, callbacks in shell.events.callbacks.items():
            yield from (((event, index), callback) for index, callback in enumerate(callbacks))
        yield "CustomTB", shell.CustomTB
