"""Streams and events of virtual GPUs: the right types, and nothing to wait for."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from typing import Any

import torch

from devwidget.gpus import conversions, machine
from devwidget.gpus import errors as cuda_errors
from devwidget.gpus.simulation_state import SimulationState
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
        if not SimulationState.is_running:
            return _find_real("Stream")(device, priority, **kwargs)  # type: ignore[no-any-return]
        index = kwargs.get("device_index")
        if index is None:
            index = machine.current_index() if device is None else conversions.label_of_device(device)
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
        return super().__new__(cls) if SimulationState.is_running else _find_real("Event")(*args, **kwargs)

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any) -> None:
        self._enable_timing, self._seconds = enable_timing, 0.0
        self.device: torch.device | None = None

    @property
    def cuda_event(self) -> int:
        """A number in place of a pointer: none before it is recorded."""
        # As a pointer is: never 0 once there is one, and no other event's as long as this one lives.
        return 0 if self.device is None else id(self)

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
            raise cuda_errors.recorded_elsewhere(self.device.index, device.index)
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
            raise cuda_errors.invalid_handle()
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
