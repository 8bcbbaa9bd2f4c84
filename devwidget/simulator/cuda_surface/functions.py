"""The module of the accelerator, `torch.cuda`, and `torch.accelerator`: mostly C functions that a CPU build of torch lacks."""

from __future__ import annotations

import functools
import uuid
from typing import Any

import torch

from devwidget.records.schema.message import Message
from devwidget.simulator.cuda_surface import generators, memory_stats, streams
from devwidget.simulator.devices import machine
from devwidget.simulator.devices.machine import Machine
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.patching import Patches, refusing
from devwidget.simulator.torch_internals import C, locate_name

GPU_NAME = "devwidget virtual GPU"


def properties(index: int) -> object:
    """The properties of one GPU."""
    built_in = Machine.visible[machine.check_index(index)]
    identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"devwidget-{built_in}")
    return SimulationState.accelerator.properties(GPU_NAME, Machine.capacities[built_in], identity, built_in)


def device_count() -> int:
    """How many GPUs the program sees."""
    return machine.count_gpus()


def install(patches: Patches) -> None:
    """Give torch the virtual GPUs."""
    accelerator, module = SimulationState.accelerator, torch.get_device_module(SimulationState.accelerator.type)
    answers = {name: functools.partial(_always, answer) for name, answer in accelerator.answers.items()}
    for name, function in {**C_FUNCTIONS, **memory_stats.C_FUNCTIONS, **answers}.items():
        patches.set(C, accelerator.c_prefix + name, function)
    for name, function in {**ACCELERATOR, **memory_stats.ACCELERATOR}.items():
        patches.set(C, "_accelerator_" + name, function)
    patches.set(C, "_get_accelerator", _current)
    for name, value in {
        "device_count": device_count,
        "_get_device_properties": properties,
        "_exchange_device": machine.exchange_current,
        "_maybe_exchange_device": machine.maybe_exchange_current,
        "default_generators": generators.default_generators(len(Machine.capacities)),
        "is_bf16_supported": lambda including_emulation=True: True,
        "get_arch_list": lambda: str(accelerator.answers["getArchFlags"]).split(),
        "Stream": streams.VirtualStream,
        "Event": streams.VirtualEvent,
        "_is_in_bad_fork": _is_in_bad_fork,
        "utilization": lambda device=None: 0,
    }.items():
        patches.set(module, name, value)
    patches.hold(module, "_initialized", True)
    patches.hold(module, "_cached_device_count", None)  # written by parts of torch that hold the real `device_count`
    # Asked by RNNs; torch would warn that it was built without cuDNN.
    patches.set(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
    patches.set(module.graphs, accelerator.c_prefix + "isCurrentStreamCapturing", lambda: False)
    patches.set(*locate_name("nvtx"), Markers())
    patches.set(C, "_nccl_version", lambda: 2 << 32 | 29 << 16 | 7)
    patches.set(C, "_nccl_version_suffix", lambda: b"")
    patches.set(torch.version, accelerator.type, accelerator.version)
    if hasattr(torch.backends, accelerator.type):
        patches.set(getattr(torch.backends, accelerator.type), "is_built", lambda: True)
    patches.set(module.streams, "Stream", streams.VirtualStream)
    patches.set(module.streams, "Event", streams.VirtualEvent)
    patches.set(torch, "Stream", _stream)
    patches.set(torch, "Event", _event)


class Markers:
    """Ranges for a profiler that is not there."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args: 0


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
        if isinstance(device, (str, torch.device)) and torch.device(device).type != SimulationState.accelerator.type:
            return _real_stream(device, **kwargs)
        return streams.VirtualStream(device, **kwargs)


class _event(metaclass=_StreamType):
    kinds = (torch.Event, streams.VirtualEvent)

    def __new__(cls, device: Any = None, **kwargs: Any) -> Any:
        """A virtual event, unless the device is no GPU."""
        if not SimulationState.is_running:
            return _real_event(device, **kwargs)
        if isinstance(device, (str, torch.device)) and torch.device(device).type != SimulationState.accelerator.type:
            return _real_event(device, **kwargs)
        return streams.VirtualEvent(**kwargs)


_real_stream, _real_event = torch.Stream, torch.Event


def _always(answer: object, *args: Any) -> object:
    return answer


def _current(check: Any = None) -> torch.device:
    return torch.device(SimulationState.accelerator.type)


def _nothing(*args: Any) -> None:
    return None


def _is_in_bad_fork() -> bool:
    return Machine.is_forked


_no_jiterator = refusing(
    Message("virtual GPUs compile no kernels"),
    why=Message("the source of one is CUDA's C++"),
    instead=Message("the same in torch's operators"),
)(_nothing)
_tell_of_waits = refusing(
    Message("virtual GPUs do not tell of synchronization"),
    why=Message("nothing on them is asynchronous, so nothing waits"),
    instead=Message("devwidget.record(), which finds each place that would wait"),
)(_nothing)


def _only_silent(mode: int) -> None:
    """Sets the mode of telling of waits, which here is none."""
    if mode:
        _tell_of_waits(mode)


def _capability(index: int) -> dict[str, Any]:
    return {"supported_dtypes": {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32}}


C_FUNCTIONS: dict[str, Any] = {
    "getDeviceCount": machine.count_gpus,
    "getDevice": machine.current_index,
    "setDevice": machine.set_current,
    "exchangeDevice": machine.exchange_current,
    "maybeExchangeDevice": machine.maybe_exchange_current,
    "synchronize": _nothing,
    "ipc_collect": _nothing,
    "init": _nothing,
    "isInBadFork": _is_in_bad_fork,
    "hasPrimaryContext": lambda index: index < machine.count_gpus(),
    "canDeviceAccessPeer": lambda device, peer: device != peer,
    "get_sync_debug_mode": lambda: 0,
    "set_sync_debug_mode": _only_silent,
    "getCurrentStream": streams.current_of,
    "getDefaultStream": streams.default,
    "setStream": streams.make_current,
    "getCurrentRawStream": machine.current_stream_of,
    "sleep": _nothing,
    "isCurrentStreamCapturing": lambda: False,
    "jiterator_compile_and_launch_kernel": _no_jiterator,
}
"""Behind the prefix of the accelerator, such as `_cuda_`."""

ACCELERATOR: dict[str, Any] = {
    "getAccelerator": _current,
    "hooks_device_count": machine.count_gpus,
    "getDeviceIndex": machine.current_index,
    "setDeviceIndex": machine.set_current,
    "exchangeDevice": machine.exchange_current,
    "maybeExchangeDevice": machine.maybe_exchange_current,
    "getStream": streams.current_stream,
    "setStream": streams.set_stream,
    "synchronizeDevice": _nothing,
    "getDeviceCapability": _capability,
}
"""Behind `_accelerator_`."""
