"""Private names of torch that devwidget depends on, looked up on first use, never at import.

A name is private if a part of its path, from `torch` on, begins with an underscore. Private attributes of single objects
(`module._parameters`, `parameter._version`, `operator._schema`) are fields of the user's data, and are read where they are
needed.
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

TESTED = "2.13"
NEEDED: Mapping[str, Mapping[str, str]] = {
    "reading tensors": {
        "DisableTorchFunction": "torch._C.DisableTorchFunction",
        "TensorBase": "torch._C.TensorBase",
        "disable_current_modes": "torch.utils._python_dispatch._disable_current_modes",
        "storage_id": "torch._C._storage_id",
    },
    "recording": {
        "DispatchKey": "torch._C.DispatchKey",
        "DispatchKeySet": "torch._C.DispatchKeySet",
        "ExceptionWrapper": "torch._utils.ExceptionWrapper",
        "Generator": "torch._C.Generator torch.Generator",
        "HigherOrderOperator": "torch._ops.HigherOrderOperator",
        "OpOverload": "torch._ops.OpOverload",
        "OperatorBase": "torch._ops.OperatorBase",
        "StopRecomputation": "torch.utils.checkpoint._StopRecomputationError",
        "all_keys": "torch._C._dispatch_keyset_full",
        "backend_name": "torch._C._get_privateuse1_backend_name",
        "arg_tree_leaves": "torch.utils._pytree.arg_tree_leaves",
        "current_autograd_node": "torch._C._current_autograd_node",
        "disabled_torch_function": "torch._C._disabled_torch_function_impl torch.nn.Parameter.__torch_function__",
        "dispatch_modes": "torch.utils._python_dispatch._get_current_dispatch_mode_stack",
        "excluded_keys": "torch._C._dispatch_tls_local_exclude_set",
        "excluding_keys": "torch._C._ExcludeDispatchKeyGuard",
        "forcing_keys": "torch._C._ForceDispatchKeyGuard",
        "function_modes": "torch.overrides._get_current_function_mode_stack",
        "functorch_interpreter": "torch._C._functorch.peek_interpreter_stack",
        "get_unwrapped": "torch._C._functorch.get_unwrapped",
        "has_fallback": "torch._C._dispatch_has_backend_fallback",
        "has_kernel": "torch._C._dispatch_has_kernel_for_dispatch_key",
        "has_thread_object": "torch._C._is_key_in_tls",
        "included_keys": "torch._C._dispatch_tls_local_include_set",
        "including_key": "torch._C._IncludeDispatchKeyGuard",
        "is_any_autocast": "torch._C._is_any_autocast_enabled",
        "is_functorch_wrapped": "torch._C._functorch.is_functorch_wrapped_tensor",
        "is_key_excluded": "torch._C._dispatch_tls_is_dispatch_key_excluded",
        "keys_below": "torch._C._dispatch_keyset_full_after",
        "keys_of": "torch._C._dispatch_keys",
        "module_call": "torch.nn.Module._call_impl.__code__",
        "next_autograd_number": "torch._C._autograd._get_sequence_nr",
        "operator_library": "torch._C._dispatch_library",
        "operator_names": "torch._C._dispatch_get_all_op_names",
        "operators_file": "torch._ops.__file__",
        "parse_key": "torch._C._dispatch_key_parse",
        "pop_function_mode": "torch.overrides._pop_mode",
        "push_function_mode": "torch.overrides._push_mode",
        "put_thread_object": "torch._C._stash_obj_in_tls",
        "run_backward": "torch.autograd._engine_run_backward",
        "set_key_included": "torch._C._dispatch_tls_set_dispatch_key_included",
        "thread_object": "torch._C._get_obj_in_tls",
        "tracing_state": "torch._C._get_tracing_state",
        "global_forward_hooks": "torch.nn.modules.module._global_forward_hooks",
        "global_forward_pre_hooks": "torch.nn.modules.module._global_forward_pre_hooks",
        "has_any_global_hook": "torch.nn.modules.module._has_any_global_hook",
        "hooks_always_called": "torch.nn.modules.module._global_forward_hooks_always_called",
        "hooks_with_kwargs": "torch.nn.modules.module._global_forward_hooks_with_kwargs",
        "step_post_hooks": "torch.optim.optimizer._global_optimizer_post_hooks",
        "step_pre_hooks": "torch.optim.optimizer._global_optimizer_pre_hooks",
    },
    "restoring": {
        "InferenceMode": "torch._C._InferenceMode",
        "default_device": "torch._GLOBAL_DEVICE_CONTEXT",
        "set_grad_enabled": "torch._C._set_grad_enabled torch.set_grad_enabled",
    },
    "explaining an error": {"device_constructors": "torch.utils._device._device_constructors"},
    "answering for a rank": {
        "WorkerServer": "torch._C._distributed_c10d._WorkerServer",
        "register_handler": "torch._C._distributed_c10d._register_handler",
    },
    "planning a step": {
        "FakeTensorMode": "torch._subclasses.FakeTensorMode",
        "TorchDispatchMode": "torch.utils._python_dispatch.TorchDispatchMode",
        "conjugate_view": "torch._conj",
        "negative_view": "torch._neg_view",
        "tree_leaves": "torch.utils._pytree.tree_leaves",
    },
    "planning for a mesh": {
        "FakeStore": "torch.testing._internal.distributed.fake_pg.FakeStore",
        "fully_shard": "torch.distributed.fsdp.fully_shard",
        "local_shape_and_offset": "torch.distributed.tensor._utils._compute_local_shape_and_global_offset",
    },
    "reading what FSDP has gathered": {
        "fsdp_state_of": "torch.distributed.fsdp._fully_shard._fsdp_state._get_module_fsdp_state",
    },
}
"""Purpose -> our name -> the path in torch, and alternatives, best first."""

OPTIONAL: Mapping[str, str] = {
    "BatchIterator": "torch.utils.data.dataloader._BaseDataLoaderIter",
    "C": "torch._C",
    "Gather": "torch.nn.parallel._functions.Gather",
    "ProcessGroup": "torch.distributed.ProcessGroup",
    "ReduceAddCoalesced": "torch.nn.parallel._functions.ReduceAddCoalesced",
    "Scatter": "torch.nn.parallel._functions.Scatter",
    "callback_from_stance": "torch._dynamo.eval_frame._callback_from_stance",
    "cuda_has_context": "torch._C._cuda_hasPrimaryContext",
    "compiler_stance": "torch._dynamo.eval_frame._stance",
    "collective_counts": "torch._C._distributed_c10d._dump_fr_trace_json",
    "collective_entries": "torch._C._distributed_c10d._dump_fr_trace",
    "default_store": "torch.distributed.distributed_c10d._get_default_store",
    "export": "torch.export._trace._export",
    "function_state": "torch._C._get_torch_function_state",
    "generic_scan": "torch._higher_order_ops.scan.generic_scan",
    "grouped_mm": "torch.ops.aten._grouped_mm.default",
    "nccl_counts": "torch._C._distributed_c10d._dump_nccl_trace_json",
    "nccl_entries": "torch._C._distributed_c10d._dump_nccl_trace",
    "process_groups": "torch.distributed.distributed_c10d._world",
    "skipping_function_modes": "torch._C._skip_one_hop_torch_function",
    "read_counter": "torch.optim.optimizer._get_value",
    "queue_callback": "torch.autograd.Variable._execution_engine.queue_callback",
    "ranks_of_group": "torch.distributed.get_process_group_ranks",
    "resolve_group": "torch._C._distributed_c10d._resolve_process_group",
    "saved_data": "torch._C._autograd.SavedTensor.data",
    "set_function_state": "torch._C._set_torch_function_state",
    "outer_module_call": "torch.nn.Module._wrapped_call_impl.__code__",
    "set_versions": "torch._C._autograd._unsafe_set_version_counter",
}
"""Names that not every build has. They are None there."""
FIELDS = frozenset(
    """
    _backend_fns _backoff_factor _backward_hooks _base _boxed_call _buffers _cdata _compiled_call_impl _data
    _destroy _enabled _export _fsdp_param_group _fsdp_param_groups _get_root_mesh _growth_factor
    _growth_interval _init_scale _is_compiled _local_tensor _models _module_info _modules _nnz _op _op_dk _parameters
    _post_accumulate_grad_hooks _reset_state _schema _sequence_nr _sharded_state _spec _state _torchdynamo_inline
    _torchdynamo_orig_backend _type _use_count _version _warn_once
    """.split()
)
"""Fields and methods of single objects of the user, torch or Python, read where they are needed."""

DYNAMO = "torch._dynamo.eval_frame"
EXPORT = "torch.export._trace"
FAKE_TENSORS = "torch._subclasses.fake_tensor"
FSDP = "torch.distributed.fsdp._fully_shard._fsdp_state"
FSDP_GROUP = "torch.distributed.fsdp._fully_shard._fsdp_param_group"
HIGHER_ORDER = "torch._higher_order_ops"
LOADER_ITERATOR = "torch.utils.data.dataloader._BaseDataLoaderIter"
TENSOR_METHODS = "torch._tensor"
COMPILED_MODULE = "torch._dynamo.eval_frame.OptimizedModule"
SCRIPTED_MODULE = "torch.jit._script.RecursiveScriptModule"
"""Modules and classes that are only compared by name. If one has moved, nothing matches it."""

PRECISION_PAIR = "_get_fp32_precision_getter", "_set_fp32_precision_setter"
"""Names in `torch._C`: getter and setter of how float32 products are computed."""
_checked: set[str] = set()


def find_path(path: str) -> Any:
    """Return what is at a path, loading the modules on it.

    Raises:
        AttributeError: if it does not exist.
        ImportError: if a module does not exist.
    """
    found: Any = torch
    names = path.split(".")
    for depth, name in enumerate(names[1:], 2):
        module = ".".join(names[:depth])
        if module not in sys.modules and not hasattr(found, name):
            importlib.import_module(module)
        found = sys.modules.get(module) or getattr(found, name)  # a function may hide the module of its name: `scan`
    return found


def find_first(paths: str) -> Any:
    """Return what is at the first of these paths that exists.

    Raises:
        LookupError: if none does.
    """
    for path in paths.split():
        try:
            return find_path(path)
        except MemoryError:
            raise
        except Exception:  # a module of torch that lacks something itself raises anything while it is imported
            continue
    raise LookupError(paths)


def list_absent(table: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths of a table that do not exist."""
    for paths in table.values():
        try:
            find_first(paths)
        except LookupError:
            yield paths.split()[0]


def check_names(*purposes: str) -> None:
    """Check that this torch has all names, before anything is changed. Repeated calls are cheap.

    Raises:
        DevwidgetError: with the version and all missing names.
    """
    for purpose in purposes:
        if purpose not in _checked:
            missing = list(list_absent(NEEDED[purpose]))
            if missing:
                raise _refuse_torch(purpose, missing)
            _checked.add(purpose)


def find_target(name: str) -> tuple[Any, str]:
    """Return the owner of a name in torch and the attribute name there, to replace it."""
    return owner_and_name(next(table[name] for table in (*NEEDED.values(), OPTIONAL) if name in table))


def has_name(name: str) -> bool:
    """Return whether this torch has an optional name."""
    return not any(list_absent({name: OPTIONAL[name]}))


def owner_and_name(path: str) -> tuple[Any, str]:
    """Return the last part of a path, and its owner."""
    owner, _, last = path.rpartition(".")
    return find_path(owner), last


def find_optional(name: str) -> Any:
    """Return the object of this name, None if this torch lacks it: `check_names` refuses before it is needed."""
    try:
        return __getattr__(name)
    except DevwidgetError:
        return None


def group_in(value: Any) -> Any:
    """Return the process group passed to an operator: by name, or boxed for C++."""
    if isinstance(value, str):
        return __getattr__("resolve_group")(value)
    known = __getattr__("ProcessGroup")
    if isinstance(value, known):
        return value
    return known.unbox(value)


def _refuse_torch(purpose: str, missing: list[str]) -> DevwidgetError:
    facts = {"names": ", ".join(f"`{path}`" for path in missing), "purpose": purpose}
    return DevwidgetError(
        Message("torch {version} has no {names}, which {purpose} needs", version=torch.__version__, **facts),
        why=Message("private parts of torch differ from version to version"),
        instead=Message("use torch {tested}, which is tested", tested=TESTED),
    )


def __getattr__(name: str) -> Any:
    """Return the object of this name and store it as a global of this file, so that it is looked up once.

    Raises:
        DevwidgetError: if this torch does not have it.
    """
    for purpose, table in NEEDED.items():
        if name in table:
            try:
                found = find_first(table[name])
            except LookupError:
                raise _refuse_torch(purpose, table[name].split()[:1]) from None
            break
    else:
        if name not in OPTIONAL:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            found = find_first(OPTIONAL[name])
        except LookupError:
            found = None
    return globals().setdefault(name, found)
