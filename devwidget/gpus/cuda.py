"""`torch.cuda`, and `torch.accelerator`: C functions that a CPU build lacks, streams and events, generators, and refusals.

All random generators draw from the CPU's default stream, so that a program gives the same numbers on virtual GPUs as on the
CPU. What is there for real GPUs alone is refused by name, or without effect where nothing depends on it."""

from __future__ import annotations

import functools
import itertools
import sys
import time
import types
import uuid
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.torch_internals import Generator as RealGenerator
from devwidget.gpus import errors, labels, machine, tensors
from devwidget.gpus.labels import DEVICES
from devwidget.gpus.machine import ANSWERS, ARCHITECTURE, VERSION, CudaProperties
from devwidget.gpus.patching import Patches, replacing, wrap_with_refusal
from devwidget.gpus.state import simulation
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

DEVICE_TYPE = 1
"""The place of CUDA in `c10::DeviceType`."""
PRIORITIES, POOL = 4, 32
"""How many priorities there are, and streams of each on a GPU: then they come again. Source: `CUDAStream.cpp`."""
_made: defaultdict[tuple[int, int], itertools.count[int]] = defaultdict(itertools.count)
"""GPU and rank of a priority -> how many streams were asked for."""


def _take_from_pool(gpu: int, priority: int) -> int:
    """The number of the next stream, which says what its priority is."""
    rank = min(max(-priority, 0), PRIORITIES - 1)
    return next(_made[gpu, rank]) % POOL << 5 | rank + 1 << 1 | 1


def _find_real(name: str) -> Any:
    """What torch means by the name after a simulation in which ours was imported."""
    return getattr(torch.cuda, name)


class VirtualStream(torch.Stream):
    """A stream; work on virtual GPUs is done when a call returns, so streams only have to exist."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> VirtualStream:
        """A new stream on a device, the current one if none is given."""
        if not simulation.is_running:
            return _find_real("Stream")(device, priority, **kwargs)  # type: ignore[no-any-return]
        index = kwargs.get("device_index")
        if index is None:
            if device is None:
                index = machine.current_index()
            else:
                index = tensors.label_of_device(device)
        if index < 0:
            raise ValueError(f"Expected a cuda device, but got: {device}")
        stream_id = kwargs.get("stream_id")
        if stream_id is None:
            stream_id = _take_from_pool(index, priority)
        return super().__new__(cls, stream_id=stream_id, device_index=index, device_type=DEVICE_TYPE)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._before: list[tuple[int, VirtualStream]] = []

    @property
    def cuda_stream(self) -> int:
        """The number of the stream, in place of a pointer."""
        return self.stream_id

    @property
    def priority(self) -> int:
        """Lower numbers come first on a GPU; here all streams are equal."""
        return -max((self.stream_id >> 1 & 0xF) - 1, 0)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The lowest and the highest priority that may be asked for."""
        return 0, 1 - PRIORITIES

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """Everything is done."""
        return True

    def is_capturing(self) -> bool:
        """There are no graphs of streams here."""
        return False

    def record_event(self, event: Any = None) -> Any:
        """An event that has happened."""
        event = VirtualEvent() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> VirtualStream:
        self._before.append((machine.current_index(), current_stream()))
        set_stream(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        index, stream = self._before.pop()
        machine.set_current(stream.device_index)
        set_stream(stream)
        machine.set_current(index)


def _refuse_sending() -> SimulationError:
    return SimulationError(
        Message("events of virtual GPUs cannot be sent to another process"),
        why=Message("each process has a memory of its own for each virtual GPU"),
        instead="torch.cuda.synchronize() before data are sent",
    )  # fmt: skip


class VirtualEvent:
    """An event, which remembers when it was recorded."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """An event of virtual GPUs, or a real one where there are none."""
        if simulation.is_running:
            return super().__new__(cls)
        return _find_real("Event")(*args, **kwargs)

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any) -> None:
        self._enable_timing, self._seconds = enable_timing, 0.0
        self.device: torch.device | None = None

    @property
    def cuda_event(self) -> int:
        """A number in place of a pointer: none before it is recorded."""
        # As a pointer is: never 0 once there is one, and no other event's as long as this one lives.
        if self.device is None:
            return 0
        return id(self)

    event_id = cuda_event

    def ipc_handle(self) -> bytes:
        """The GPUs of another process have a memory of their own."""
        raise _refuse_sending()

    @staticmethod
    def from_ipc_handle(device: Any, handle: bytes) -> VirtualEvent:
        """As `ipc_handle`."""
        raise _refuse_sending()

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {f'{self.cuda_event:#x}' if self.cuda_event else 'uninitialized'}>"

    def record(self, stream: Any = None) -> None:
        """Note the time.

        Raises:
            RuntimeError: on another GPU than before.
        """
        device = (current_stream() if stream is None else stream).device
        if self.device is not None and self.device != device:
            raise errors.recorded_elsewhere(self.device.index, device.index)
        self._seconds, self.device = time.perf_counter(), device

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """It has happened."""
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def elapsed_time(self, end_event: VirtualEvent) -> float:
        """Milliseconds between two events.

        Raises:
            ValueError: if one of them was not made for timing, or was not recorded.
            torch.AcceleratorError: if they were recorded on different GPUs.
        """
        if not (self._enable_timing and end_event._enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.device is None or end_event.device is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if self.device != end_event.device:
            raise errors.invalid_handle()
        return (end_event._seconds - self._seconds) * 1000


def _stream_key(gpu: int, number: int) -> tuple[int, int, int]:
    return number, gpu, DEVICE_TYPE


def default_stream(gpu: int) -> tuple[int, int, int]:
    """The default stream of a GPU: its number, the GPU and the kind of device."""
    return _stream_key(machine.check_index(gpu), machine.DEFAULT_STREAM)


def current_stream_key(gpu: int) -> tuple[int, int, int]:
    """The current stream of a GPU in this thread, likewise. Source: `check_gpu` in `CUDAStream.cpp`; seen on an H100."""
    if not 0 <= gpu < (count := machine.count_gpus()):
        raise RuntimeError(f"Device index value {gpu} is out of index range [0, {count})")
    return _stream_key(gpu, machine.current_stream_of(gpu))


def make_current(stream_id: int, device_index: int, device_type: int) -> None:
    """Make a stream, and its GPU, current in this thread."""
    machine.set_current(device_index)
    machine.set_current_stream(device_index, stream_id)


def current_stream(gpu: int | None = None) -> VirtualStream:
    """The current stream of a GPU, the current one if none is named, in this thread."""
    number, index, _ = current_stream_key(machine.current_index() if gpu is None else gpu)
    return VirtualStream(stream_id=number, device_index=index)


def set_stream(stream: torch.Stream) -> None:
    """As `make_current`, for a stream that somebody has."""
    make_current(stream.stream_id, stream.device_index, stream.device_type)


# Generators of random numbers.


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
        if not simulation.is_running:
            return RealGenerator(device)
        is_virtual = torch.device(device).type == "cuda"
        if is_virtual:
            return VirtualGenerator(device)
        return HostGenerator(device)


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
    if owner is not None:
        enabled = vars(owner).get("distribute_region_enabled")
    else:
        enabled = None
    if isinstance(enabled, property):
        patches.set(owner, "distribute_region_enabled", property(lambda tracker: False, enabled.fset))


GPU_NAME = "devwidget virtual GPU"


def gpu_properties(index: int) -> object:
    """The properties of one GPU."""
    built_in = simulation.visible[machine.check_index(index)]
    identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"devwidget-{built_in}")
    return CudaProperties(GPU_NAME, simulation.capacities[built_in], identity, built_in)


def device_count() -> int:
    """How many GPUs the program sees."""
    return machine.count_gpus()


def install_functions(patches: Patches) -> None:
    """Give torch the virtual GPUs."""
    answers = {name: functools.partial(_return_answer, answer) for name, answer in ANSWERS.items()}
    for name, function in {**C_FUNCTIONS, **machine.MEMORY_FUNCTIONS, **answers}.items():
        patches.set(C, "_cuda_" + name, function)
    for name, function in {**ACCELERATOR, **machine.ACCELERATOR_MEMORY}.items():
        patches.set(C, "_accelerator_" + name, function)
    patches.set(C, "_get_accelerator", _current_accelerator)
    for name, value in {
        "device_count": device_count,
        "_get_device_properties": gpu_properties,
        "_exchange_device": machine.exchange_current,
        "_maybe_exchange_device": machine.maybe_exchange_current,
        "default_generators": default_generators(len(simulation.capacities)),
        "is_bf16_supported": lambda including_emulation=True: True,
        "get_arch_list": lambda: [ARCHITECTURE],
        "Stream": VirtualStream,
        "Event": VirtualEvent,
        "_is_in_bad_fork": _is_in_bad_fork,
        "is_initialized": is_initialized,
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
    patches.set(torch.cuda.graphs, "_cuda_isCurrentStreamCapturing", lambda: False)
    patches.set(*locate_name("nvtx"), Markers())
    # That of the public name alone: what a profile is made of by default asks the other one, and sees the CPU.
    patches.set(torch.profiler, "supported_activities", lambda: set(ACTIVITIES))
    patches.set(C, "_nccl_version", lambda: 2 << 32 | 29 << 16 | 7)
    patches.set(C, "_nccl_version_suffix", lambda: b"")
    if torch.version.cuda is None:  # else torchvision would find that it was built for another one
        patches.set(torch.version, "cuda", VERSION)
    patches.set(torch.backends.cuda, "is_built", lambda: True)
    patches.set(torch.cuda.streams, "Stream", VirtualStream)
    patches.set(torch.cuda.streams, "Event", VirtualEvent)
    patches.set(torch, "Stream", _stream)
    patches.set(torch, "Event", _event)


ACTIVITIES = torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA
CUDNN_VERSION = 91002


def is_initialized() -> bool:
    """Whether the program has used a GPU.

    Many parts of torch hold two functions that ask this first and would look for a driver then: one is the first use, and one
    has what it is given wait for that, such as a seed. Here nothing has to wait.
    """
    asking = sys._getframe(1).f_code
    if asking is cuda_lazy_init.__code__:
        machine.begin_use()
    return asking in (cuda_lazy_init.__code__, cuda_lazy_call.__code__) or (simulation.is_in_use and not simulation.is_forked)


class Markers:
    """Ranges for a profiler that is not there."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args: -2  # as NVTX says that nobody listens


class _Kind(type):
    """Lets `isinstance` see real and virtual ones alike."""

    kinds: tuple[type, ...]

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.kinds)


def _stand_in(real: type, virtual: type) -> type:
    """What stands for `torch.Stream` or `torch.Event`: makes a virtual one, unless the device is no GPU."""

    def make(cls: type, device: Any = None, **kwargs: Any) -> Any:
        is_other = isinstance(device, (str, torch.device)) and torch.device(device).type != "cuda"
        if is_other or not simulation.is_running:
            return real(device, **kwargs)
        return virtual(device=device, **kwargs)

    return _Kind(real.__name__, (), {"kinds": (real, virtual), "__new__": make})


_stream, _event = _stand_in(torch.Stream, VirtualStream), _stand_in(torch.Event, VirtualEvent)


def _return_answer(answer: object, *args: Any) -> object:
    return answer


def _current_accelerator(check: Any = None) -> torch.device:
    return torch.device("cuda")


def _do_nothing(*args: Any) -> None:
    return None


def _is_in_bad_fork() -> bool:
    return simulation.is_forked


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
    "getCurrentStream": current_stream_key,
    "getDefaultStream": default_stream,
    "setStream": make_current,
    "getCurrentRawStream": machine.current_stream_of,
    "sleep": _do_nothing,
    "isCurrentStreamCapturing": lambda: False,
}
"""Behind `_cuda_`."""

ACCELERATOR: dict[str, Any] = {
    "getAccelerator": _current_accelerator,
    "hooks_device_count": machine.count_gpus,
    "getDeviceIndex": machine.current_index,
    "setDeviceIndex": machine.set_current,
    "exchangeDevice": machine.exchange_current,
    "maybeExchangeDevice": machine.maybe_exchange_current,
    "getStream": current_stream,
    "setStream": set_stream,
    "synchronizeDevice": _do_nothing,
    "getDeviceCapability": _device_capability,
}
"""Behind `_accelerator_`."""


INTO_GIVEN = "_broadcast_out", "_scatter_out", "_gather_out"
"""What `torch.cuda.comm` calls where it is given tensors to fill."""
CLASSES = {"memory": "MemPool", "streams": "ExternalStream"}


def install_refusals(patches: Patches) -> None:
    """Put a refusal where torch would say that a name is missing."""
    patches.set(C, "__getattr__", _find_absent)
    for part, name in CLASSES.items():
        owner = getattr(torch.cuda, part)
        if hasattr(owner, name):  # not every torch has both
            patches.wrap(getattr(owner, name), "__new__", _refuse_name(name))
    patches.wrap(torch.cuda.graphs.CUDAGraph, "__new__", _no_graph)
    patches.set(torch.cuda, "_cudart", RUNTIME)
    patches.wrap(torch.autograd.profiler.profile, "__init__", profile_cpu_alone)


_no_graph = wrap_with_refusal(
    Message("virtual GPUs record no CUDA graphs"),
    why=Message("a graph is a list of kernels, and none is started here"),
    instead=Message("run eagerly"),
)


def _find_absent(name: str) -> Any:
    """A function of C++ that only a build for CUDA has, which refuses."""
    if not name.startswith(("_cuda_", "_nccl_")) and name not in INTO_GIVEN:
        raise AttributeError(f"module 'torch._C' has no attribute '{name}'")
    return _refuse_name(name)(_do_nothing)


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


RUNTIME = types.SimpleNamespace(
    cudaError=types.SimpleNamespace(success=0),
    cudaMemGetInfo=machine.free_and_total,
    **dict.fromkeys(("cudaProfilerStart", "cudaProfilerStop"), lambda: 0),
    **dict.fromkeys(("cudaHostRegister", "cudaHostUnregister"), lambda pointer, size=0, flags=0: 0),
)
"""What torch and programs use of CUDA's runtime library: memory of the CPU stays as it is, and nothing is profiled."""
