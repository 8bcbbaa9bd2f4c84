"""What the accelerator's module has for real GPUs alone: refused by name, or without effect where nothing depends on it."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from devwidget.records.errors import SimulationError
from devwidget.records.schema.message import Message
from devwidget.simulator.cuda_surface import memory_stats
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.patching import Patches, refusing
from devwidget.simulator.torch_internals import C

C_FUNCTIONS = """
allocationTraceback changeCurrentAllocator cudaCachingAllocator_enable cudaCachingAllocator_is_enabled
cudaCachingAllocator_raw_alloc cudaCachingAllocator_raw_delete cudaHostAllocator customAllocator getAllocator
getCublasLtWorkspaceSize getCublasWorkspaceSize getCurrentBlasHandle getCurrentSolverHandle getMemoryMetadata
getStreamFromExternal hostMemoryStats record_untuned_enable record_untuned_is_enabled resetAccumulatedHostMemoryStats
resetPeakHostMemoryStats setCublasLtWorkspaceSize setCublasWorkspaceSize setMemoryMetadata tunableop_enable
tunableop_get_filename tunableop_get_max_tuning_duration tunableop_get_max_tuning_iterations tunableop_get_results
tunableop_get_rotating_buffer_size tunableop_get_validators tunableop_is_enabled tunableop_read_file
tunableop_set_filename tunableop_set_max_tuning_duration tunableop_set_max_tuning_iterations
tunableop_set_numerical_check_tolerances tunableop_set_rotating_buffer_size tunableop_tuning_enable
tunableop_tuning_is_enabled
""".split()
"""Behind the prefix of the accelerator, such as `_cuda_`."""
NCCL = "all_gather all_reduce broadcast init_rank reduce reduce_scatter unique_id".split()
CLASSES = {"memory": "MemPool", "streams": "ExternalStream"}


def install(patches: Patches) -> None:
    """Put a refusal where torch would say that a name is missing."""
    module = torch.get_device_module(SimulationState.accelerator.type)
    for name in [SimulationState.accelerator.c_prefix + each for each in C_FUNCTIONS] + [f"_nccl_{each}" for each in NCCL]:
        patches.set(C, name, _refused(name)(_nothing))
    for part, name in CLASSES.items():
        if hasattr(getattr(module, part, None), name):  # not every accelerator has them
            patches.wrap(getattr(getattr(module, part), name), "__new__", _refused(name))
    if hasattr(module.graphs, "CUDAGraph"):
        patches.wrap(module.graphs.CUDAGraph, "__new__", _no_graph)
    patches.set(module, "_cudart", Runtime())
    patches.wrap(torch.autograd.profiler.profile, "__init__", of_the_cpu)


_no_graph = refusing(
    Message("virtual GPUs record no CUDA graphs"),
    why=Message("a graph is a list of kernels, and none is started here"),
    instead=Message("run eagerly"),
)


def _refused(name: str) -> Any:
    return refusing(
        Message("virtual GPUs have no `{name}`", name=name),
        why=Message("it is about the memory, the kernels or the libraries of a real one"),
        instead=Message("the program without it, or a real GPU"),
    )


def _nothing() -> None:
    return None


def of_the_cpu(original: Callable[..., None]) -> Callable[..., None]:
    """`profile.__init__` without the kernels of a GPU, of which there are none; C++ would complain at each operator."""

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("use_device") == SimulationState.accelerator.type:
            kwargs["use_device"] = None
        original(self, *args, **kwargs)

    return __init__


class Runtime:
    """What is used of CUDA's runtime library."""

    cudaError = types.SimpleNamespace(success=0)

    def cudaMemGetInfo(self, index: int) -> tuple[int, int]:
        """Free and total bytes."""
        return memory_stats.free_and_total(index)

    def cudaProfilerStart(self) -> int:
        """Nothing to profile."""
        return 0

    cudaProfilerStop = cudaProfilerStart

    def cudaGetErrorString(self, code: int) -> str:
        """There are no errors."""
        return "no error"

    def cudaHostRegister(self, pointer: int, size: int, flags: int) -> int:
        """Memory of the CPU stays as it is."""
        return 0

    def cudaHostUnregister(self, pointer: int) -> int:
        """Memory of the CPU stays as it is."""
        return 0

    def cudaStreamCreate(self, pointer: int) -> int:
        """There are no streams but torch's.

        Raises:
            SimulationError: always.
        """
        raise SimulationError(
            Message("virtual GPUs have no streams of other libraries"),
            why=Message("there is no CUDA below torch"),
            instead="torch.cuda.Stream()",
        )

    cudaStreamDestroy = cudaStreamCreate
