"""`torch.cuda`, and `torch.accelerator`: C functions that a CPU build lacks, and refusals.

All random generators draw from the CPU's default stream, so that a program gives the same numbers on virtual GPUs as on the
CPU. What is there for real GPUs alone is refused by name, or without effect where nothing depends on it.
"""

from __future__ import annotations

import functools
import sys
import types
import uuid
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.torch_internals import Generator as RealGenerator
from devwidget.gpus import conversions, labels, machine, memory_stats, streams
from devwidget.gpus.labels import DEVICES
from devwidget.gpus.machine import Machine
from devwidget.gpus.patching import Patches, replacing, wrap_with_refusal
from devwidget.gpus.properties import ANSWERS, ARCHITECTURE, VERSION, CudaProperties
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.torch_internals import (
    SHARDED_RANDOM,
    SHARDED_RANDOM_TRACKER,
    C,
    cuda_lazy_call,
    cuda_lazy_init,
    locate_name,
)
from devwidget.records.errors import SimulationError
from devwidget.records.schema.message import Message


class VirtualGenerator(RealGenerator):
    """A generator that says it belongs to a GPU."""

    def __new__(cls, device: Any = None) -> VirtualGenerator:
        """A generator of its own."""
        return super().__new__(cls)

    def __init__(self, device: Any = None) -> None:
        # Its number is not looked at before it is used.
        self._device = torch.device(device)
        labels.remember_generator(self)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The virtual GPU."""
        return self._device

    def set_state(self, state: torch.Tensor) -> Any:
        """Set the state of its stream."""
        _refuse_state(state)
        return super().set_state(state)


def _refuse_state(state: Any) -> None:
    """A state is on the CPU, of whatever device it is. Source: `check_rng_state`, ATen/core/Generator.h."""
    if isinstance(state, torch.Tensor) and labels.label_of(state) >= 0:
        raise TypeError("RNG state must be a torch.ByteTensor")


def _check_state(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def set_rng_state(new_state: torch.Tensor) -> None:
        _refuse_state(new_state)
        original(new_state)

    return set_rng_state


_no_offset = wrap_with_refusal(
    Message("virtual GPUs have no offset of random numbers"),
    why=Message("all of them draw from the stream of the CPU, so that numbers equal its own"),
    instead="torch.cuda.get_rng_state() and set_rng_state()",
)
for _name in ("get_offset", "set_offset", "graphsafe_get_state", "graphsafe_set_state"):
    if hasattr(RealGenerator, _name):
        setattr(VirtualGenerator, _name, _no_offset(getattr(RealGenerator, _name)))


class HostGenerator(RealGenerator):
    """A generator of the CPU, whose states are on the CPU too."""

    def set_state(self, state: torch.Tensor) -> Any:
        """Set the state."""
        _refuse_state(state)
        return super().set_state(state)


class DefaultGenerator(VirtualGenerator):
    """The default generator of a GPU: another name for the CPU's."""

    def __init__(self, device: torch.device) -> None:
        # Not looked up: that would count as the first use of a GPU.
        self._device = device
        labels.remember_generator(self)

    def manual_seed(self, seed: int) -> DefaultGenerator:
        """Seed the common stream."""
        torch.default_generator.manual_seed(seed)
        return self

    def seed(self) -> int:
        """Seed the common stream at random."""
        return torch.default_generator.seed()

    def initial_seed(self) -> int:
        """The seed of the common stream."""
        return torch.default_generator.initial_seed()

    def get_state(self) -> torch.Tensor:
        """The state of the common stream."""
        return torch.default_generator.get_state()

    def set_state(self, state: torch.Tensor) -> DefaultGenerator:
        """Set the state of the common stream."""
        _refuse_state(state)
        torch.default_generator.set_state(state)
        return self


class _GeneratorType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, RealGenerator)


class Generator(metaclass=_GeneratorType):
    """Stands for `torch.Generator`: a real one for the CPU, a virtual one for a GPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """A generator for a device."""
        if not SimulationState.is_running:
            return RealGenerator(device)
        is_virtual = torch.device(device).type == "cuda"
        return VirtualGenerator(device) if is_virtual else HostGenerator(device)


def default_generators(count: int) -> tuple[DefaultGenerator, ...]:
    """One for each GPU."""
    return tuple(DefaultGenerator(DEVICES[index]) for index in range(count))


def install_generators(patches: Patches) -> None:
    """Replace `torch.Generator`, and check the states that the default one is given."""
    patches.set(torch, "Generator", Generator)
    for owner in (torch, torch.random):
        patches.wrap(owner, "set_rng_state", _check_state)
    patches.when_loaded(SHARDED_RANDOM, lambda module: _draw_plainly(module, patches))


def _draw_plainly(module: Any, patches: Patches) -> None:
    """Each shard draws as on the CPU: torch would move the offset in a state of CUDA's own, which the common stream has not."""
    owner = getattr(module, SHARDED_RANDOM_TRACKER, None)
    enabled = vars(owner).get("distribute_region_enabled") if owner is not None else None
    if isinstance(enabled, property):
        patches.set(owner, "distribute_region_enabled", property(lambda tracker: False, enabled.fset))


GPU_NAME = "devwidget virtual GPU"


def gpu_properties(index: int) -> object:
    """The properties of one GPU."""
    built_in = Machine.visible[machine.check_index(index)]
    identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"devwidget-{built_in}")
    return CudaProperties(GPU_NAME, Machine.capacities[built_in], identity, built_in)


def device_count() -> int:
    """How many GPUs the program sees."""
    return machine.count_gpus()


def install_functions(patches: Patches) -> None:
    """Give torch the virtual GPUs."""
    answers = {name: functools.partial(_return_answer, answer) for name, answer in ANSWERS.items()}
    for name, function in {**C_FUNCTIONS, **memory_stats.C_FUNCTIONS, **answers}.items():
        patches.set(C, "_cuda_" + name, function)
    for name, function in {**ACCELERATOR, **memory_stats.ACCELERATOR}.items():
        patches.set(C, "_accelerator_" + name, function)
    patches.set(C, "_get_accelerator", _current_accelerator)
    for name, value in {
        "device_count": device_count,
        "_get_device_properties": gpu_properties,
        "_exchange_device": machine.exchange_current,
        "_maybe_exchange_device": machine.maybe_exchange_current,
        "default_generators": default_generators(len(Machine.capacities)),
        "is_bf16_supported": lambda including_emulation=True: True,
        "get_arch_list": lambda: [ARCHITECTURE],
        "Stream": streams.VirtualStream,
        "Event": streams.VirtualEvent,
        "_is_in_bad_fork": _is_in_bad_fork,
        "is_initialized": is_initialized,
        **dict.fromkeys(SENSORS, _read_sensor),
        "list_gpu_processes": _list_processes,
    }.items():
        patches.set(torch.cuda, name, value)
    # Read by parts of torch that hold the real `is_initialized`.
    patches.hold(torch.cuda, "_initialized", True)
    # Written by parts of torch that hold the real `device_count`.
    patches.hold(torch.cuda, "_cached_device_count", None)
    # Asked by RNNs; torch would warn that it was built without cuDNN.
    patches.set(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
    patches.set(torch.backends.cudnn, "is_available", lambda: True)
    patches.set(torch.backends.cudnn, "version", lambda: CUDNN_VERSION)
    _install_libraries(patches)
    patches.set(torch.cuda.graphs, "_cuda_isCurrentStreamCapturing", lambda: False)
    patches.set(*locate_name("nvtx"), Markers())
    # That of the public name alone: what a profile is made of by default asks the other one, and sees the CPU.
    patches.set(torch.profiler, "supported_activities", lambda: set(ACTIVITIES))
    patches.set(C, "_nccl_version", lambda: 2 << 32 | 29 << 16 | 7)
    patches.set(C, "_nccl_version_suffix", lambda: b"")
    if torch.version.cuda is None:  # else torchvision would find that it was built for another one
        patches.set(torch.version, "cuda", VERSION)
    patches.set(torch.backends.cuda, "is_built", lambda: True)
    patches.set(torch.cuda.streams, "Stream", streams.VirtualStream)
    patches.set(torch.cuda.streams, "Event", streams.VirtualEvent)
    patches.set(torch, "Stream", _stream)
    patches.set(torch, "Event", _event)


SENSORS = "utilization", "memory_usage", "temperature", "power_draw", "clock_rate"
ACTIVITIES = torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA
CUDNN_VERSION = 91002
LINEAR_ALGEBRA = "linalg", "blas"
PLANS = 4096
"""Of Fourier transforms that CUDA keeps at most. Source: `CuFFTPlanCache.h`."""


def _install_libraries(patches: Patches) -> None:
    """Which library of CUDA's is to be preferred is remembered, and how many plans are kept, of which there are none."""
    chosen: dict[str, Any] = {}
    for kind in LINEAR_ALGEBRA:
        name = f"{kind}_preferred_backend"
        if hasattr(C, f"_get_{name}"):  # newer torch has both
            chosen[kind] = getattr(C, f"_get_{name}")()
            patches.set(C, f"_get_{name}", functools.partial(chosen.get, kind))
            patches.set(C, f"_set_{name}", functools.partial(chosen.__setitem__, kind))
    most: dict[int, int] = {}
    sizes: Any = vars(torch.backends.cuda.cuFFTPlanCache)
    patches.set(sizes["size"], "getter", lambda gpu: 0)
    patches.set(sizes["max_size"], "getter", lambda gpu: most.get(gpu, PLANS))
    patches.set(sizes["max_size"], "setter", most.__setitem__)
    patches.set(*locate_name("clear_plan_cache"), _do_nothing)


def is_initialized() -> bool:
    """Whether the program has used a GPU.

    Many parts of torch hold two functions that ask this first and would look for a driver then: one is the first use, and one
    has what it is given wait for that, such as a seed. Here nothing has to wait.
    """
    asking = sys._getframe(1).f_code
    if asking is cuda_lazy_init.__code__:
        machine.begin_use()
    return asking in (cuda_lazy_init.__code__, cuda_lazy_call.__code__) or (Machine.is_in_use and not Machine.is_forked)


class Markers:
    """Ranges for a profiler that is not there."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args: -2  # as NVTX says that nobody listens


class _StreamType(type):
    """Lets `isinstance` see real and virtual ones alike."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.kinds)  # type: ignore[attr-defined]


class _stream(metaclass=_StreamType):
    kinds = (torch.Stream,)

    def __new__(cls, device: Any = None, **kwargs: Any) -> Any:
        """A virtual stream, unless the device is no GPU."""
        if not SimulationState.is_running:
            return _real_stream(device, **kwargs)
        if isinstance(device, (str, torch.device)) and torch.device(device).type != "cuda":
            return _real_stream(device, **kwargs)
        return streams.VirtualStream(device, **kwargs)


class _event(metaclass=_StreamType):
    kinds = (torch.Event, streams.VirtualEvent)

    def __new__(cls, device: Any = None, **kwargs: Any) -> Any:
        """A virtual event, unless the device is no GPU."""
        if not SimulationState.is_running:
            return _real_event(device, **kwargs)
        if isinstance(device, (str, torch.device)) and torch.device(device).type != "cuda":
            return _real_event(device, **kwargs)
        return streams.VirtualEvent(**kwargs)


_real_stream, _real_event = torch.Stream, torch.Event


def _return_answer(answer: object, *args: Any) -> object:
    return answer


def _current_accelerator(check: Any = None) -> torch.device:
    return torch.device("cuda")


def _read_sensor(device: Any = None) -> int:
    """What NVML would measure: nothing is warm, and nothing runs."""
    return 0


def _list_processes(device: Any = None) -> str:
    """As torch prints a GPU on which none is seen."""
    index = machine.current_index() if device is None else conversions.label_of_device(device)
    return f"GPU:{index}\nno processes are running"


def _do_nothing(*args: Any) -> None:
    return None


def _is_in_bad_fork() -> bool:
    return Machine.is_forked


_refuse_jiterator = wrap_with_refusal(
    Message("virtual GPUs compile no kernels"),
    why=Message("the source of one is CUDA's C++"),
    instead=Message("the same in torch's operators"),
)(_do_nothing)
_refuse_waits = wrap_with_refusal(
    Message("virtual GPUs do not tell of synchronization"),
    why=Message("nothing on them is asynchronous, so nothing waits"),
    instead=Message("devwidget.record(), which finds each place that would wait"),
)(_do_nothing)


def _set_sync_debug_mode(mode: int) -> None:
    """Sets the mode of telling of waits, which here is none."""
    if mode:
        _refuse_waits(mode)


def _device_capability(index: int) -> dict[str, Any]:
    return {"supported_dtypes": {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32}}


C_FUNCTIONS: dict[str, Any] = {
    "getDeviceCount": machine.count_gpus,
    "getDevice": machine.current_index,
    "setDevice": machine.set_current,
    "exchangeDevice": machine.exchange_current,
    "maybeExchangeDevice": machine.maybe_exchange_current,
    "synchronize": _do_nothing,
    "ipc_collect": _do_nothing,
    "init": _do_nothing,
    "isInBadFork": _is_in_bad_fork,
    "hasPrimaryContext": lambda index: index < machine.count_gpus(),
    "canDeviceAccessPeer": lambda device, peer: device != peer,
    "get_sync_debug_mode": lambda: 0,
    "set_sync_debug_mode": _set_sync_debug_mode,
    "getCurrentStream": streams.current_stream_key,
    "getDefaultStream": streams.default_stream,
    "setStream": streams.make_current,
    "getCurrentRawStream": machine.current_stream_of,
    "sleep": _do_nothing,
    "isCurrentStreamCapturing": lambda: False,
    "jiterator_compile_and_launch_kernel": _refuse_jiterator,
}
"""Behind `_cuda_`."""

ACCELERATOR: dict[str, Any] = {
    "getAccelerator": _current_accelerator,
    "hooks_device_count": machine.count_gpus,
    "getDeviceIndex": machine.current_index,
    "setDeviceIndex": machine.set_current,
    "exchangeDevice": machine.exchange_current,
    "maybeExchangeDevice": machine.maybe_exchange_current,
    "getStream": streams.current_stream,
    "setStream": streams.set_stream,
    "synchronizeDevice": _do_nothing,
    "getDeviceCapability": _device_capability,
}
"""Behind `_accelerator_`."""


ABSENT = """
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
"""Behind `_cuda_`."""
NCCL = "all_gather all_reduce broadcast init_rank reduce reduce_scatter unique_id".split()
CLASSES = {"memory": "MemPool", "streams": "ExternalStream"}


def install_refusals(patches: Patches) -> None:
    """Put a refusal where torch would say that a name is missing."""
    for name in [f"_cuda_{each}" for each in ABSENT] + [f"_nccl_{each}" for each in NCCL]:
        patches.set(C, name, _refuse_name(name)(_do_nothing))
    for part, name in CLASSES.items():
        owner = getattr(torch.cuda, part)
        if hasattr(owner, name):  # not every torch has both
            patches.wrap(getattr(owner, name), "__new__", _refuse_name(name))
    patches.wrap(torch.cuda.graphs.CUDAGraph, "__new__", _no_graph)
    patches.set(torch.cuda, "_cudart", Runtime())
    patches.wrap(torch.autograd.profiler.profile, "__init__", profile_cpu_alone)


_no_graph = wrap_with_refusal(
    Message("virtual GPUs record no CUDA graphs"),
    why=Message("a graph is a list of kernels, and none is started here"),
    instead=Message("run eagerly"),
)


def _refuse_name(name: str) -> Any:
    return wrap_with_refusal(
        Message("virtual GPUs have no `{name}`", name=name),
        why=Message("it is about the memory, the kernels or the libraries of a real one"),
        instead=Message("the program without it, or a real GPU"),
    )


@replacing
def profile_cpu_alone(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """`profile.__init__` without the kernels of a GPU, of which there are none; C++ would complain at each operator."""
    if kwargs.get("use_device") == "cuda":
        kwargs["use_device"] = None
    original(self, *args, **kwargs)


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

    def cudaHostRegister(self, pointer: int, size: int = 0, flags: int = 0) -> int:
        """Memory of the CPU stays as it is."""
        return 0

    cudaHostUnregister = cudaHostRegister

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
