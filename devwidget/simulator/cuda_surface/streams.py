"""Streams and events of virtual GPUs: the right types, and nothing to wait for."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch

from devwidget.simulator.devices import machine
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.tensor_surface import conversions


class _Local(threading.local):
    streams: dict[int, VirtualStream] | None = None


_local = _Local()
_last_id = 0


class VirtualStream(torch.Stream):
    """A stream; work on virtual GPUs is done when a call returns, so streams only have to exist."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> VirtualStream:
        """A new stream on a device, the current one if none is given."""
        global _last_id
        index = kwargs.get("device_index")
        if index is None:
            index = machine.current_index() if device is None else conversions.label_of_device(device)
        stream_id = kwargs.get("stream_id")
        if stream_id is None:
            _last_id += 1
            stream_id = _last_id
        return super().__new__(cls, stream_id=stream_id, device_index=index, device_type=SimulationState.accelerator.number)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._before: list[tuple[int, VirtualStream]] = []

    @property
    def cuda_stream(self) -> int:
        """The number of the stream, in place of a pointer."""
        return self.stream_id

    @property
    def priority(self) -> int:
        """All streams are equal."""
        return 0

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The lowest and the highest priority that may be asked for."""
        return 0, -3

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


class VirtualEvent:
    """An event, which remembers when it was recorded."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any) -> None:
        self._enable_timing, self._seconds = enable_timing, 0.0
        self.device: torch.device | None = None

    def record(self, stream: Any = None) -> None:
        """Note the time."""
        self._seconds = time.perf_counter()
        self.device = (current_stream() if stream is None else stream).device

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
        """
        if not (self._enable_timing and end_event._enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.device is None or end_event.device is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._seconds - self._seconds) * 1000


def default_stream(device: Any = None) -> VirtualStream:
    """The default stream of a device."""
    index = machine.current_index() if device is None else conversions.label_of_device(device)
    return VirtualStream(stream_id=0, device_index=index)


def current_stream(device: Any = None) -> VirtualStream:
    """The current stream of a device, in this thread."""
    index = machine.current_index() if device is None else conversions.label_of_device(device)
    return (_local.streams or {}).get(index) or default_stream(index)


def set_stream(stream: VirtualStream | None) -> None:
    """Make a stream, and its device, current in this thread."""
    if stream is None:
        return
    machine.set_current(stream.device_index)
    _local.streams = {**(_local.streams or {}), stream.device_index: stream}
