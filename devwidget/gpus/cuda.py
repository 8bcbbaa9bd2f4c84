"""`torch.cuda`, and `torch.accelerator`: C functions that a CPU build lacks, streams and events, generators, and refusals.

All random generators draw from the CPU's default stream, so that a program gives the same numbers on virtual GPUs as on the
CPU. What is there for real GPUs alone is refused by name, or without effect where nothing depends on it."""

from __future__ import annotations

import itertools
import sys
import time
import types
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.torch_internals import Generator as RealGenerator
from devwidget.gpus import labels, machine, tensors
from devwidget.gpus.labels import DEVICES
from devwidget.gpus.machine import ARCHITECTURE, VERSION, CudaProperties
from devwidget.gpus.patching import Patches, refusing, replaces, stand_in
from devwidget.gpus.state import simulation
from devwidget.gpus.torch_internals import (
    SHARDED_RANDOM,
    SHARDED_RANDOM_TRACKER,
    C,
    cuda_lazy_call,
    cuda_lazy_init,
    locate_name,
)
from devwidget.records.schema.message import Message

DEVICE_TYPE = 1
"""The place of CUDA in `c10::DeviceType`."""
PRIORITIES, POOL = 4, 32
"""How many priorities there are, and streams of each on a GPU: then they come again. Source: `CUDAStream.cpp`."""
_made: defaultdict[tuple[int, int], itertools.count[int]] = defaultdict(itertools.count)
"""GPU and rank of a priority -> how many streams were asked for."""


def _take_from_pool(gpu: int, priority: int) -> int:
    rank = min(max(-priority, 0), PRIORITIES - 1)
    return next(_made[gpu, rank]) % POOL << 5 | rank + 1 << 1 | 1


def _do_nothing(*args: Any) -> None:
    """Return at once: work on virtual GPUs is done when a call returns."""


class VirtualStream(torch.Stream):
    """A stream; work on virtual GPUs is done when a call returns, so streams only have to exist."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
        """A new stream on a device, the current one if none is given."""
        if not simulation.is_running:  # imported in a simulation that is over
            return torch.cuda.Stream(device, priority, **kwargs)  # type: ignore[no-untyped-call]
        index = kwargs.get("device_index")
        if index is None:
            index = tensors.label_of_device("cuda" if device is None else device)
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

    priority_range: Any = staticmethod(lambda: (0, 1 - PRIORITIES))
    synchronize: Any = _do_nothing
    wait_stream: Any = _do_nothing
    wait_event: Any = _do_nothing
    query: Any = staticmethod(lambda: True)
    is_capturing: Any = staticmethod(lambda: False)

    def record_event(self, event: Any = None) -> Any:
        """Record an event, a new one if none is given."""
        event = event or VirtualEvent()
        event.record(self)
        return event

    def __enter__(self) -> VirtualStream:
        self._before.append((machine.current_index(), _current_stream()))
        _set_stream(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        index, stream = self._before.pop()
        machine.set_current(stream.device_index)
        _set_stream(stream)
        machine.set_current(index)


_refuse_sending = refusing(
    Message("events of virtual GPUs cannot be sent to another process"),
    why=Message("each process has its own memory for each virtual GPU"),
    instead="torch.cuda.synchronize() before data are sent",
)


class VirtualEvent:
    """An event, which remembers when it was recorded."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """An event of virtual GPUs, or a real one where there are none."""
        if simulation.is_running:
            return super().__new__(cls)
        return torch.cuda.Event(*args, **kwargs)  # type: ignore[no-untyped-call]

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any) -> None:
        self._enable_timing, self._seconds = enable_timing, 0.0
        self.device: torch.device | None = None

    @property
    def cuda_event(self) -> int:
        """A number in place of a pointer: 0 before it is recorded, then one that no other living event has."""
        return 0 if self.device is None else id(self)

    event_id = cuda_event
    ipc_handle = _refuse_sending
    from_ipc_handle = staticmethod(_refuse_sending)
    wait: Any = _do_nothing
    synchronize: Any = _do_nothing
    query: Any = staticmethod(lambda: True)

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {f'{self.cuda_event:#x}' if self.cuda_event else 'uninitialized'}>"

    def record(self, stream: Any = None) -> None:
        """Note the time."""
        device = (_current_stream() if stream is None else stream).device
        if self.device is not None and self.device != device:
            # Source: `CUDAEvent.h`.
            raise RuntimeError(f"Event device {self.device.index} does not match recording stream's device {device.index}.")
        self._seconds, self.device = time.perf_counter(), device

    def elapsed_time(self, end_event: VirtualEvent) -> float:
        """Milliseconds between two events."""
        if not (self._enable_timing and end_event._enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.device is None or end_event.device is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if self.device != end_event.device:
            raise torch.AcceleratorError("CUDA error: invalid resource handle")
        return (end_event._seconds - self._seconds) * 1000


def _default_stream(gpu: int) -> tuple[int, int, int]:
    return machine.DEFAULT_STREAM, machine.check_index(gpu), DEVICE_TYPE


def _current_stream_key(gpu: int) -> tuple[int, int, int]:
    """Source: `check_gpu` in `CUDAStream.cpp`; seen on an H100."""
    if not 0 <= gpu < (count := machine.count_gpus()):
        raise RuntimeError(f"Device index value {gpu} is out of index range [0, {count})")
    return machine.current_stream_of(gpu), gpu, DEVICE_TYPE


def _make_current(stream_id: int, device_index: int, device_type: int) -> None:
    machine.set_current(device_index)
    machine.set_current_stream(device_index, stream_id)


def _current_stream(gpu: int | None = None) -> Any:
    number, index, _ = _current_stream_key(machine.current_index() if gpu is None else gpu)
    return VirtualStream(stream_id=number, device_index=index)


def _set_stream(stream: torch.Stream) -> None:
    _make_current(stream.stream_id, stream.device_index, stream.device_type)


def _refuse_gpu_state(state: Any) -> None:
    """A state is on the CPU, of whatever device it is. Source: `check_rng_state`, ATen/core/Generator.h."""
    if isinstance(state, torch.Tensor) and labels.label_of(state) >= 0:
        raise TypeError("RNG state must be a torch.ByteTensor")


class HostGenerator(RealGenerator):
    """A generator of the CPU, whose states are on the CPU too."""

    def set_state(self, state: torch.Tensor) -> Any:
        """Set the state of its stream."""
        _refuse_gpu_state(state)
        return super().set_state(state)


class VirtualGenerator(HostGenerator):
    """A generator that says it belongs to a GPU."""

    def __new__(cls, device: Any = None) -> VirtualGenerator:
        """A generator of its own."""
        return super().__new__(cls)

    def __init__(self, device: Any = None) -> None:
        # Its number is not looked up: that would count as the first use of a GPU.
        self._device = torch.device(device)
        labels.VIRTUAL_GENERATORS[self._cdata] = self  # type: ignore[attr-defined]

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The virtual GPU."""
        return self._device


@replaces(torch, "set_rng_state")
@replaces(torch.random, "set_rng_state")
def _set_rng_state(original: Callable[..., None], new_state: torch.Tensor) -> None:
    _refuse_gpu_state(new_state)
    original(new_state)


class DefaultGenerator(VirtualGenerator):
    """The default generator of a GPU: another name for the CPU's."""

    def manual_seed(self, seed: int) -> DefaultGenerator:
        """Seed the common stream."""
        torch.default_generator.manual_seed(seed)
        return self

    def set_state(self, state: torch.Tensor) -> DefaultGenerator:
        """Set the state of the common stream."""
        _refuse_gpu_state(state)
        torch.default_generator.set_state(state)
        return self

    seed: Any = staticmethod(lambda: torch.default_generator.seed())
    initial_seed: Any = staticmethod(lambda: torch.default_generator.initial_seed())
    get_state: Any = staticmethod(lambda: torch.default_generator.get_state())


for _kind in (HostGenerator, VirtualGenerator, DefaultGenerator):
    for _field in ("__module__", "__name__", "__qualname__"):
        setattr(_kind, _field, getattr(RealGenerator, _field))


def _draw_plainly(module: Any, patches: Patches) -> None:
    """Each shard draws as on the CPU: torch would move the offset in a state of CUDA's own, which the common stream has not."""
    owner = getattr(module, SHARDED_RANDOM_TRACKER, None)
    enabled = getattr(owner, "distribute_region_enabled", None)
    if isinstance(enabled, property):
        patches.set(owner, "distribute_region_enabled", property(lambda tracker: False, enabled.fset))


def _gpu_properties(index: int) -> object:
    built_in = simulation.visible[machine.check_index(index)]
    return CudaProperties(simulation.capacities[built_in], built_in)


def install_functions(patches: Patches) -> None:
    """Give torch the virtual GPUs."""
    for name, function in {**C_FUNCTIONS, **machine.MEMORY_FUNCTIONS}.items():
        patches.set(C, "_cuda_" + name, function)
    for name, function in {**ACCELERATOR, **machine.ACCELERATOR_MEMORY}.items():
        patches.set(C, "_accelerator_" + name, function)
    patches.set(C, "_get_accelerator", ACCELERATOR["getAccelerator"])
    for name, value in {
        "device_count": machine.count_gpus,
        "_get_device_properties": _gpu_properties,
        "_exchange_device": machine.exchange_current,
        "_maybe_exchange_device": machine.exchange_current,
        "default_generators": tuple(map(DefaultGenerator, DEVICES[: len(simulation.capacities)])),
        "is_bf16_supported": lambda including_emulation=True: True,
        "get_arch_list": lambda: [ARCHITECTURE],
        "Stream": VirtualStream,
        "Event": VirtualEvent,
        "_is_in_bad_fork": C_FUNCTIONS["isInBadFork"],
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
    patches.set(torch.backends.cudnn, "version", lambda: 91002)
    patches.set(torch.cuda.graphs, "_cuda_isCurrentStreamCapturing", lambda: False)
    patches.set(*locate_name("nvtx"), _Markers())
    # That of the public name alone: what a profile is made of by default asks the other one, and sees the CPU.
    patches.set(torch.profiler, "supported_activities", lambda: {_Activity.CPU, _Activity.CUDA})
    patches.set(C, "_nccl_version", lambda: 2 << 32 | 29 << 16 | 7)
    patches.set(C, "_nccl_version_suffix", lambda: b"")
    if torch.version.cuda is None:  # else torchvision would find that it was built for another one
        patches.set(torch.version, "cuda", VERSION)
    patches.set(torch.backends.cuda, "is_built", lambda: True)
    patches.set(torch.cuda.streams, "Stream", VirtualStream)
    patches.set(torch.cuda.streams, "Event", VirtualEvent)
    patches.set(torch, "Stream", _make_by_device(torch.Stream, VirtualStream))
    patches.set(torch, "Event", _make_by_device(torch.Event, VirtualEvent))
    patches.set(torch, "Generator", stand_in(_make_generator, RealGenerator))
    patches.when_loaded(SHARDED_RANDOM, lambda module: _draw_plainly(module, patches))
    _install_refusals(patches)


_Activity = torch.profiler.ProfilerActivity


def is_initialized() -> bool:
    """Whether the program has used a GPU.

    Two functions of torch call it before they look for a driver: `_lazy_init`, which is the first use, and `_lazy_call`, which
    defers a call, such as a seed, until then. Here nothing has to be deferred.
    """
    asking = sys._getframe(1).f_code
    if asking is cuda_lazy_init.__code__:
        machine.begin_use()
    return asking in (cuda_lazy_init.__code__, cuda_lazy_call.__code__) or (simulation.is_in_use and not simulation.is_forked)


class _Markers:
    def __getattr__(self, name: str) -> Any:
        return lambda *args: -2  # as NVTX says that nobody listens


def _make_generator(cls: type, device: Any = "cpu") -> Any:
    if not simulation.is_running:
        return RealGenerator(device)
    if torch.device(device).type == "cuda":
        return VirtualGenerator(device)
    return HostGenerator(device)


def _make_by_device(real: type, virtual: type) -> type:
    def make(cls: type, device: Any = None, **kwargs: Any) -> Any:
        is_other = isinstance(device, (str, torch.device)) and torch.device(device).type != "cuda"
        if is_other or not simulation.is_running:
            return real(device, **kwargs)
        return virtual(device=device, **kwargs)

    return stand_in(make, real, virtual)


_refuse_sync_debugging = refusing(
    Message("virtual GPUs do not report synchronization"),
    why=Message("nothing on them is asynchronous, so nothing syncs"),
    instead=Message("devwidget.record(), which finds each line that would sync"),
)
_DTYPES = {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32}


C_FUNCTIONS: dict[str, Any] = {
    "getDeviceCount": machine.count_gpus,
    "getDevice": machine.current_index,
    "setDevice": machine.set_current,
    "exchangeDevice": machine.exchange_current,
    "maybeExchangeDevice": machine.exchange_current,
    "synchronize": _do_nothing,
    "ipc_collect": _do_nothing,
    "init": _do_nothing,
    "isInBadFork": lambda: simulation.is_forked,
    "hasPrimaryContext": lambda index: index < machine.count_gpus(),
    "canDeviceAccessPeer": lambda device, peer: device != peer,
    "get_sync_debug_mode": lambda: 0,
    "set_sync_debug_mode": lambda mode: _refuse_sync_debugging() if mode else None,
    "getCurrentStream": _current_stream_key,
    "getDefaultStream": _default_stream,
    "setStream": _make_current,
    "getCurrentRawStream": machine.current_stream_of,
    "sleep": _do_nothing,
    "isCurrentStreamCapturing": lambda: False,
    "getCompiledVersion": lambda: 12080,
    "getDriverVersion": lambda: 12080,
    "getArchFlags": lambda: ARCHITECTURE,
}
"""Behind `_cuda_`."""

ACCELERATOR: dict[str, Any] = {
    "getAccelerator": lambda check=None: torch.device("cuda"),
    "hooks_device_count": machine.count_gpus,
    "getDeviceIndex": machine.current_index,
    "setDeviceIndex": machine.set_current,
    "exchangeDevice": machine.exchange_current,
    "maybeExchangeDevice": machine.exchange_current,
    "getStream": _current_stream,
    "setStream": _set_stream,
    "synchronizeDevice": _do_nothing,
    "getDeviceCapability": lambda index: {"supported_dtypes": _DTYPES},
}
"""Behind `_accelerator_`."""


INTO_GIVEN = "_broadcast_out", "_scatter_out", "_gather_out"
"""What `torch.cuda.comm` calls where it is given tensors to fill."""


def _install_refusals(patches: Patches) -> None:
    patches.set(C, "__getattr__", _find_absent)
    for owner, name in ((torch.cuda.memory, "MemPool"), (torch.cuda.streams, "ExternalStream")):
        if hasattr(owner, name):  # not every torch has both
            _refuse_making(patches, getattr(owner, name), _refusing_name(name))
    _refuse_making(patches, torch.cuda.graphs.CUDAGraph, _refuse_graph)
    patches.set(torch.cuda, "_cudart", RUNTIME)


def _refuse_making(patches: Patches, kind: type, refused: Callable[..., Any]) -> None:
    patches.wrap(kind, "__new__", lambda original: refused)


_refuse_graph = refusing(
    Message("virtual GPUs cannot record CUDA graphs"),
    why=Message("a graph is a list of kernels, and virtual GPUs start none"),
    instead=Message("run eagerly"),
)


def _find_absent(name: str) -> Any:
    """A function of C++ that only a build for CUDA has, which refuses."""
    if not name.startswith(("_cuda_", "_nccl_")) and name not in INTO_GIVEN:
        raise AttributeError(f"module 'torch._C' has no attribute '{name}'")
    return _refusing_name(name)


def _refusing_name(name: str) -> Callable[..., Any]:
    return refusing(
        Message("virtual GPUs have no `{name}`", name=name),
        why=Message("it needs the memory, the kernels or the libraries of a real GPU"),
        instead=Message("run the program without it, or on a real GPU"),
    )


for _name in ("get_offset", "set_offset", "graphsafe_get_state", "graphsafe_set_state"):
    if hasattr(RealGenerator, _name):  # all of them draw from the CPU's stream, which has no offset
        setattr(VirtualGenerator, _name, _refusing_name(_name))


@replaces(torch.autograd.profiler.profile, "__init__")
def _profile_cpu_alone(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """Without the kernels of a GPU, which there are none of: C++ would complain at each operator."""
    if kwargs.get("use_device") == "cuda":
        kwargs["use_device"] = None
    original(self, *args, **kwargs)


RUNTIME = types.SimpleNamespace(
    cudaError=types.SimpleNamespace(success=0),
    cudaMemGetInfo=machine.free_and_total,
    **dict.fromkeys(("cudaProfilerStart", "cudaProfilerStop"), lambda: 0),
    **dict.fromkeys(("cudaHostRegister", "cudaHostUnregister"), lambda pointer, size=0, flags=0: 0),
)
"""What torch and programs use of CUDA's runtime library: memory of the CPU does not change, and nothing is profiled."""
