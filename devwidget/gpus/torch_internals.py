"""The private names of torch that virtual GPUs need, in addition to the names that recording needs, and a check of all of them.

Modules that are loaded after the check import the names from here, as if they were defined in this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from devwidget.capture import torch_internals
from devwidget.records.device import CUDA
from devwidget.records.errors import SimulationError
from devwidget.records.schema.message import Message

if TYPE_CHECKING:
    from torch._ops import OpOverload as OpOverload
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode

SHARDED_RANDOM, SHARDED_RANDOM_TRACKER = "torch.distributed.tensor._random", "_RNGStateTracker"
"""A module, and the class in it that moves the random state of a mesh of GPUs: where they have moved, it is left alone."""
TESTED = torch_internals.TESTED
NEEDED = {
    "C": "torch._C",
    "FakeTensor": "torch._subclasses.fake_tensor.FakeTensor",
    "FakeTensorMode": "torch._subclasses.fake_tensor.FakeTensorMode",
    "ScriptFunction": "torch._C.ScriptFunction",
    "ScriptMethod": "torch._C.ScriptMethod",
    "StorageBase": "torch._C.StorageBase",
    "VariableFunctions": "torch._C._VariableFunctions",
    "attention": "torch._C._nn.scaled_dot_product_attention",
    "ctc_loss_backward": "torch.ops.aten._ctc_loss_backward.default",
    "cuda_lazy_call": "torch.cuda._lazy_call",
    "cuda_lazy_init": "torch.cuda._lazy_init",
    "custom_operators": "torch._library.custom_ops.OPDEFS",
    "dynamo": "torch._dynamo",  # torch would import it in mid-operator, with the patches put aside for all threads
    "fake_answers": "torch._subclasses.fake_tensor._DISPATCH_META_HANDLERS",
    "find_builtin": "torch.jit._builtins._find_builtin",
    "flash_attention": "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu",
    "flash_attention_backward": "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward",
    "functions": "torch._VF",
    "functorch": "torch._C._functorch",
    "group_tensors": "torch._C._group_tensors_by_device_and_dtype",
    "graph_task": "torch._C._current_graph_task_id",
    "has_kernel": "torch._C._dispatch_has_kernel_for_dispatch_key",
    "init_gpu_context": "torch._subclasses.fake_tensor.init_gpu_context",
    "nvtx": "torch.cuda.nvtx._nvtx",
    "pack_padded_sequence": "torch.ops.aten._pack_padded_sequence.default",
    "parallel_streams": "torch.nn.parallel._functions._streams",
    "parse_to": "torch._C._nn._parse_to",
    "printed_tensor": "torch._tensor_str._tensor_str",
    "reraise_worker_error": "torch._utils.ExceptionWrapper.reraise",
    "registrations": "torch._C._dispatch_get_registrations_for_dispatch_key",
    "select_convolution": "torch._C._select_conv_backend",
    "singular_values": "torch.ops.aten._linalg_svd",
    "storage_holders": "torch._C._storage_Use_Count",
    "suggest_memory_format": "torch._prims_common.suggest_memory_format",
    "to_copy": "torch.ops.aten._to_copy.default",
    "tree_leaves": "torch.utils._pytree.tree_leaves",
    "tree_map_only": "torch.utils._pytree.tree_map_only",
    "validate_distributions": "torch.distributions.Distribution._validate_args",
}
"""Our name -> the path in torch, and others that do as well, best first."""
DISTRIBUTED = {
    "assign_to_buckets": "torch.distributed._compute_bucket_assignment_by_size",
    "begin_coalescing": "torch.distributed.distributed_c10d.ProcessGroup._start_coalescing",
    "broadcast_in_buckets": "torch.distributed._broadcast_coalesced",
    "end_coalescing": "torch.distributed.distributed_c10d.ProcessGroup._end_coalescing",
    "has_nccl": "torch.distributed.distributed_c10d._NCCL_AVAILABLE",
    "rebuild_buckets": "torch.distributed.Reducer._rebuild_buckets",
    "reduce_scatter_tensor": "torch.distributed.distributed_c10d.ProcessGroup._reduce_scatter_base",
    "register_backend": "torch.distributed.distributed_c10d.ProcessGroup._register_backend",
    "verify_parameters": "torch.distributed._verify_params_across_processes",
}
"""What is replaced for jobs, where torch is built to connect processes."""
FUNCTIONAL_COLLECTIVES = "_c10d_functional"
"""The namespace of collectives that give their results back."""
EXPECTED = """
torch.cuda._is_in_bad_fork torch.autograd.function.BackwardCFunction torch.autograd.graph.get_gradient_edge
torch.nn.parameter.UninitializedTensorMixin torch.nn.parallel.comm.broadcast_coalesced torch.cuda.nccl.is_available
torch.backends.cudnn.is_acceptable torch.AcceleratorError torch.accelerator.current_stream torch.Tensor._make_subclass
torch.Tensor._make_wrapper_subclass torch._C._accelerator_getAccelerator torch._C._accelerator_getStream
torch.cuda._cached_device_count torch.cuda._exchange_device torch.cuda._maybe_exchange_device
"""
"""Names that are replaced in place: public names that came late or are little known, and methods of tensors."""

PUT_IN = frozenset(
    """
    _broadcast _broadcast_coalesced _broadcast_out _cuda_isCurrentStreamCapturing _cudart
    _gather _gather_out _get_accelerator _initialized _nccl_version
    _nccl_version_suffix _scatter _scatter_out
    """.split()
)
"""Names that are put in whether this torch has them or not: builds without GPUs lack most of what is asked of C."""

_WHY = Message("they replace parts of torch that differ from version to version")


def check_torch() -> None:
    """Refuse a torch that lacks a name, or that uses real GPUs already, before anything is replaced."""
    missing = ", ".join(f"`{path}`" for path in _list_absent())
    if missing:
        raise _refuse_torch(
            Message("virtual GPUs do not support torch {version}: it has no {names}", version=torch.__version__, names=missing)
        )
    if is_started():
        raise SimulationError(
            Message("this process uses real GPUs already"),
            why=Message("tensors on real and virtual GPUs could not be distinguished"),
            instead=Message(
                'start a new kernel and call `simulate` first, or set os.environ["{variable}"] = "" before torch is imported',
                variable=CUDA.visible_variable,
            ),
        )


def has_real() -> bool:
    """Whether there are real GPUs; virtual ones can replace them until one is used."""
    return hasattr(torch._C, "_cuda_getDeviceCount") and torch.cuda.is_available()


def is_started() -> bool:
    """Whether this process uses real GPUs already."""
    return has_real() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def locate_name(name: str) -> tuple[Any, str]:
    """Return the owner of a name in torch, and the name it has there."""
    path = NEEDED.get(name) or DISTRIBUTED.get(name)
    if path is None:
        return torch_internals.find_target(name)
    return torch_internals.owner_and_name(path)


def _list_absent() -> Iterator[str]:
    beneath = (torch_internals.NEEDED[purpose] for purpose in ("reading tensors", "recording"))
    for table in (NEEDED, {path: path for path in EXPECTED.split()}, *beneath):
        yield from torch_internals.list_absent(table)


def _refuse_torch(what: str) -> SimulationError:
    return SimulationError(what, why=_WHY, instead=f"torch {TESTED}")


def __getattr__(name: str) -> Any:
    if name not in NEEDED:
        return getattr(torch_internals, name)
    try:
        return globals().setdefault(name, torch_internals.find_first(NEEDED[name]))
    except LookupError:
        facts = {"version": torch.__version__, "names": f"`{NEEDED[name]}`"}
        raise _refuse_torch(Message("virtual GPUs do not support torch {version}: it has no {names}", **facts)) from None
