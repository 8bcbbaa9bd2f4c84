"""`torch.cuda` and `torch.accelerator` on virtual GPUs: mostly the C functions that a CPU build of torch lacks."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import torch

from devwidget.simulator.cuda_surface import generators, memory_stats, streams
from devwidget.simulator.devices import machine
from devwidget.simulator.devices.labels import DEVICES
from devwidget.simulator.devices.machine import Machine
from devwidget.simulator.patching import Patches

GPU_NAME = "devwidget virtual GPU"


@dataclass(frozen=True)
class Properties:
    """What `torch.cuda.get_device_properties` tells of a virtual GPU: an A100 in all but name and memory."""

    name: str
    total_memory: int
    uuid: uuid.UUID
    pci_bus_id: int
    major: int = 8
    minor: int = 0
    multi_processor_count: int = 108
    is_integrated: bool = False
    is_multi_gpu_board: bool = False
    warp_size: int = 32
    max_threads_per_multi_processor: int = 2048
    max_threads_per_block: int = 1024
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 49152
    shared_memory_per_block_optin: int = 166912
    shared_memory_per_multiprocessor: int = 167936
    L2_cache_size: int = 41943040
    clock_rate: int = 1410000
    memory_clock_rate: int = 1593000
    memory_bus_width: int = 5120
    pci_device_id: int = 0
    pci_domain_id: int = 0
    gcnArchName: str = field(default=GPU_NAME)


def properties(index: int) -> Properties:
    """The properties of one GPU."""
    built_in = Machine.visible[machine.checked(index)]
    identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"devwidget-{built_in}")
    return Properties(GPU_NAME, Machine.capacities[built_in], identity, built_in)


def device_count() -> int:
    """How many GPUs the program sees."""
    return machine.gpus()


def install(patches: Patches) -> None:
    """Give torch the virtual GPUs."""
    for name, function in {**C_FUNCTIONS, **memory_stats.C_FUNCTIONS}.items():
        patches.set(torch._C, name, function)
    cuda = torch.cuda
    for name, value in {
        "device_count": device_count,
        "_get_device_properties": properties,
        "_exchange_device": machine.exchange,
        "_maybe_exchange_device": machine.maybe_exchange,
        "default_generators": generators.default_generators(len(Machine.capacities)),
        "is_bf16_supported": lambda including_emulation=True: True,
        "get_arch_list": lambda: ["sm_80"],
        "Stream": streams.VirtualStream,
        "Event": streams.VirtualEvent,
        "current_stream": streams.current_stream,
        "default_stream": streams.default_stream,
        "set_stream": streams.set_stream,
        "_cudart": Runtime(),
        "utilization": lambda device=None: 0,
    }.items():
        patches.set(cuda, name, value)
    patches.hold(cuda, "_initialized", True)
    patches.hold(cuda, "_cached_device_count", None)  # parts of torch that hold the real `device_count` write their answer here
    # Asked by RNNs; torch would warn that it was built without cuDNN.
    patches.set(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
    patches.set(cuda.graphs, "_cuda_isCurrentStreamCapturing", lambda: False)
    patches.set(cuda.nvtx, "_nvtx", Markers())
    patches.set(cuda.streams, "Stream", streams.VirtualStream)
    patches.set(cuda.streams, "Event", streams.VirtualEvent)
    patches.set(torch, "Stream", _stream)
    patches.set(torch, "Event", _event)


class Runtime:
    """What is used of CUDA's runtime library."""

    def cudaMemGetInfo(self, index: int) -> tuple[int, int]:
        """Free and total bytes."""
        return memory_stats.free_and_total(index)

    def cudaProfilerStart(self) -> int:
        """Nothing to profile."""
        return 0

    cudaProfilerStop = cudaProfilerStart


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
        if isinstance(device, (str, torch.device)) and torch.device(device).type != "cuda":
            return _real_stream(device, **kwargs)
        return streams.VirtualStream(device, **kwargs)


class _event(metaclass=_StreamType):
    kinds = (torch.Event, streams.VirtualEvent)

    def __new__(cls, device: Any = None, **kwargs: Any) -> Any:
        """A virtual event, unless the device is no GPU."""
        if isinstance(device, (str, torch.device)) and torch.device(device).type != "cuda":
            return _real_event(device, **kwargs)
        return streams.VirtualEvent(**kwargs)


_real_stream, _real_event = torch.Stream, torch.Event


def _nothing(*args: Any) -> None:
    return None


def _capability(index: int) -> dict[str, Any]:
    return {"supported_dtypes": {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32}}


C_FUNCTIONS: dict[str, Any] = {
    "_cuda_getDeviceCount": machine.gpus,
    "_cuda_getDevice": machine.current_index,
    "_cuda_setDevice": machine.set_current,
    "_cuda_exchangeDevice": machine.exchange,
    "_cuda_maybeExchangeDevice": machine.maybe_exchange,
    "_cuda_synchronize": _nothing,
    "_cuda_ipc_collect": _nothing,
    "_cuda_init": _nothing,
    "_cuda_isInBadFork": lambda: False,
    "_cuda_hasPrimaryContext": lambda index: index < machine.gpus(),
    "_cuda_canDeviceAccessPeer": lambda device, peer: device != peer,
    "_cuda_getCompiledVersion": lambda: 12080,
    "_cuda_getDriverVersion": lambda: 12080,
    "_cuda_getArchFlags": lambda: "sm_80",
    "_cuda_get_sync_debug_mode": lambda: 0,
    "_cuda_set_sync_debug_mode": _nothing,
    "_cuda_getCurrentRawStream": lambda index: 0,
    "_cuda_sleep": _nothing,
    "_cuda_isCurrentStreamCapturing": lambda: False,
    "_get_accelerator": lambda check=None: torch.device("cuda"),
    "_accelerator_getAccelerator": lambda: torch.device("cuda"),
    "_accelerator_hooks_device_count": machine.gpus,
    "_accelerator_getDeviceIndex": machine.current_index,
    "_accelerator_setDeviceIndex": machine.set_current,
    "_accelerator_exchangeDevice": machine.exchange,
    "_accelerator_maybeExchangeDevice": machine.maybe_exchange,
    "_accelerator_getStream": lambda index: streams.current_stream(DEVICES[index]),
    "_accelerator_setStream": streams.set_stream,
    "_accelerator_synchronizeDevice": _nothing,
    "_accelerator_getDeviceCapability": _capability,
}
