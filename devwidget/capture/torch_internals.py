"""The private names of torch that reading and recording stand on: found when they are first used, never at import.

A name is private if a part of its path, from `torch` on, begins with an underscore. Attributes of single objects that do
(`module._parameters`, `parameter._version`, `operator._schema`) are fields of the user's data, read where they are needed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message

if TYPE_CHECKING:
    from torch import Generator as Generator
    from torch._ops import HigherOrderOperator as HigherOrderOperator
    from torch._ops import OpOverload as OpOverload
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

TESTED = "2.13"
NEEDED: Mapping[str, Mapping[str, str]] = {
    "reading tensors": {
        "DisableTorchFunction": "torch._C.DisableTorchFunction",
        "TensorBase": "torch._C.TensorBase torch._C._TensorBase",
        "disable_current_modes": "torch.utils._python_dispatch._disable_current_modes",
        "storage_id": "torch._C._storage_id",
    },
    "recording": {
        "DisableTorchDispatch": "torch._C._DisableTorchDispatch",
        "DispatchKey": "torch._C.DispatchKey",
        "Gather": "torch.nn.parallel._functions.Gather",
        "Generator": "torch._C.Generator torch.Generator",
        "HigherOrderOperator": "torch._ops.HigherOrderOperator",
        "OpOverload": "torch._ops.OpOverload",
        "OperatorBase": "torch._ops.OperatorBase",
        "ReduceAddCoalesced": "torch.nn.parallel._functions.ReduceAddCoalesced",
        "Scatter": "torch.nn.parallel._functions.Scatter",
        "StopRecomputation": "torch.utils.checkpoint._StopRecomputationError",
        "TorchDispatchMode": "torch.utils._python_dispatch.TorchDispatchMode",
        "arg_tree_leaves": "torch.utils._pytree.arg_tree_leaves",
        "current_autograd_node": "torch._C._current_autograd_node",
        "disabled_torch_function": "torch._C._disabled_torch_function_impl torch.nn.Parameter.__torch_function__",
        "dispatch_modes": "torch.utils._python_dispatch._get_current_dispatch_mode_stack",
        "function_modes": "torch.overrides._get_current_function_mode_stack",
        "functorch_interpreter": "torch._C._functorch.peek_interpreter_stack",
        "has_any_global_hook": "torch.nn.modules.module._has_any_global_hook",
        "hooks_with_kwargs": "torch.nn.modules.module._global_forward_hooks_with_kwargs",
        "module_call": "torch.nn.Module._call_impl.__code__",
        "next_autograd_number": "torch._C._autograd._get_sequence_nr",
        "operators_file": "torch._ops.__file__",
        "pop_dispatch_mode": "torch._C._pop_torch_dispatch_stack",
        "pop_function_mode": "torch.overrides._pop_mode",
        "push_dispatch_mode": "torch._C._push_on_torch_dispatch_stack",
        "push_function_mode": "torch.overrides._push_mode",
        "run_backward": "torch.autograd._engine_run_backward",
        "tracing_state": "torch._C._get_tracing_state",
    },
    "restoring": {
        "BufferDict": "torch._C.BufferDict",
        "InferenceMode": "torch._C._InferenceMode",
        "ParameterDict": "torch._C.ParameterDict",
        "default_device": "torch._GLOBAL_DEVICE_CONTEXT",
        "is_multithreading_enabled": "torch._C._is_multithreading_enabled",
        "set_grad_enabled": "torch._C._set_grad_enabled torch.set_grad_enabled",
        "set_multithreading_enabled": "torch._C._set_multithreading_enabled",
    },
    "explaining an error": {"device_constructors": "torch.utils._device._device_constructors"},
    "answering for a rank": {
        "WorkerServer": "torch._C._distributed_c10d._WorkerServer",
        "register_handler": "torch._C._distributed_c10d._register_handler",
    },
    "drawing a pipeline": {
        "schedule_class": "torch.distributed.pipelining.schedules.get_schedule_class",
        "schedule_ops": "torch.distributed.pipelining._schedule_visualizer.get_schedule_ops",
    },
    "watching compiled code": {
        "eval_frame": "torch._dynamo.eval_frame",
        "generic_scan": "torch._higher_order_ops.scan.generic_scan",
    },
}
"""What for -> our name -> the path in torch, and others that do as well, best first."""

_PURPOSES = {
    str(each): each
    for each in (
        *(Message("reading tensors"), Message("recording"), Message("restoring"), Message("explaining an error")),
        *(Message("answering for a rank"), Message("drawing a pipeline"), Message("watching compiled code")),
    )
}
"""The same in words."""
OPTIONAL: Mapping[str, str] = {
    "C": "torch._C",
    "ProcessGroup": "torch.distributed.ProcessGroup",
    "any_dispatch_mode": "torch.utils._python_dispatch.any_torch_dispatch_mode_on_stack",
    "cuda_has_context": "torch._C._cuda_hasPrimaryContext",
    "collective_counts": "torch._C._distributed_c10d._dump_fr_trace_json",
    "collective_entries": "torch._C._distributed_c10d._dump_fr_trace",
    "fsdp_state_of": "torch.distributed.fsdp._fully_shard._fsdp_state._get_module_fsdp_state",
    "function_state": "torch._C._get_torch_function_state",
    "nccl_counts": "torch._C._distributed_c10d._dump_nccl_trace_json",
    "nccl_entries": "torch._C._distributed_c10d._dump_nccl_trace",
    "process_groups": "torch.distributed.distributed_c10d._world",
    "skipping_function_modes": "torch._C._skip_one_hop_torch_function",
    "ranks_of_group": "torch.distributed.get_process_group_ranks",
    "resolve_group": "torch._C._distributed_c10d._resolve_process_group",
    "set_function_state": "torch._C._set_torch_function_state",
    "tell_dynamo": "torch.utils._python_dispatch.set_is_in_mode_without_ignore_compile_internals",
}
"""Names that not every build has, and that are None there."""

DTENSORS = "torch.distributed.tensor"
DYNAMO = "torch._dynamo.eval_frame"
EXPORT = "torch.export._trace"
FAKE_TENSORS = "torch._subclasses.fake_tensor"
FSDP = "torch.distributed.fsdp._fully_shard._fsdp_state"
FSDP_GROUP = "torch.distributed.fsdp._fully_shard._fsdp_param_group"
HIGHER_ORDER = "torch._higher_order_ops"
TENSOR_METHODS = "torch._tensor"
COMPILED_MODULE = "torch._dynamo.eval_frame.OptimizedModule"
SCRIPTED_MODULE = "torch.jit._script.RecursiveScriptModule"
"""Modules and classes that are only compared by name: where one has moved, nothing is taken for it."""

_checked: set[str] = set()


def find(path: str) -> Any:
    """What is at a path, with the modules on it loaded.

    Raises:
        AttributeError: if there is nothing.
        ImportError: the same, of a module.
    """
    found: Any = torch
    names = path.split(".")
    for depth, name in enumerate(names[1:], 2):
        module = ".".join(names[:depth])
        if module not in sys.modules and not hasattr(found, name):
            importlib.import_module(module)
        found = sys.modules.get(module) or getattr(found, name)  # a function may hide the module of its name: `scan`
    return found


def first(paths: str) -> Any:
    """What is at the first of these paths that exists.

    Raises:
        LookupError: if none does.
    """
    for path in paths.split():
        try:
            return find(path)
        except (AttributeError, ImportError):
            continue
    raise LookupError(paths)


def absent(table: Mapping[str, str]) -> Iterator[str]:
    """The paths of a table that lead nowhere."""
    for paths in table.values():
        try:
            first(paths)
        except LookupError:
            yield paths.split()[0]


def check(*purposes: str) -> None:
    """Refuse what this torch lacks names for, before anything is changed; asked again, it costs a look-up.

    Raises:
        DevwidgetError: with the version, and all that is missing.
    """
    for purpose in purposes:
        if purpose not in _checked:
            missing = list(absent(NEEDED[purpose]))
            if missing:
                raise _refusal(purpose, missing)
            _checked.add(purpose)


def target(name: str) -> tuple[Any, str]:
    """The owner of a name in torch and what it is called there, for who replaces it."""
    return owner_and_name(next(table[name] for table in NEEDED.values() if name in table))


def owner_and_name(path: str) -> tuple[Any, str]:
    """The last part of a path, and what it belongs to."""
    owner, _, last = path.rpartition(".")
    return find(owner), last


def base(name: str) -> Any:
    """A class of torch to inherit from; where it is missing a class of which no object can be made."""
    try:
        return __getattr__(name)
    except DevwidgetError:
        return type(name, (), {"__init__": lambda self: __getattr__(name)})


def _refusal(purpose: str, missing: list[str]) -> DevwidgetError:
    facts = {"names": ", ".join(f"`{path}`" for path in missing), "purpose": _PURPOSES.get(purpose, purpose)}
    return DevwidgetError(
        Message("torch {version} has no {names}, which {purpose} needs", version=torch.__version__, **facts),
        why=Message("private parts of torch differ from version to version"),
        instead=Message("torch {tested}, with which this is tested", tested=TESTED),
    )


def __getattr__(name: str) -> Any:
    """The thing of this name, kept as a global of this file: asked a second time, it is an ordinary attribute.

    Raises:
        DevwidgetError: if this torch does not have it.
    """
    for purpose, table in NEEDED.items():
        if name in table:
            try:
                found = first(table[name])
            except LookupError:
                raise _refusal(purpose, table[name].split()[:1]) from None
            break
    else:
        if name not in OPTIONAL:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            found = first(OPTIONAL[name])
        except LookupError:
            found = None
    return globals().setdefault(name, found)


if not TYPE_CHECKING:
    TorchDispatchMode = base("TorchDispatchMode")
