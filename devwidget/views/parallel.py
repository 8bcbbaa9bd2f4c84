"""DataParallel as it ran: the batch cut, the replicas, what the gather point costs."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from devwidget.records.device import DeviceId
from devwidget.records.memory import DeviceMemory
from devwidget.records.parallel import DataParallelCall, Replica
from devwidget.records.trace import Trace
from devwidget.views.sums import group_by, total


@dataclass(frozen=True, slots=True)
class ParallelCall:
    """The last call of one DataParallel module; a loop that calls it many times repeats the same picture.

    Attributes:
        call: the call itself.
        replicas: in the order of `device_ids`; none where one GPU runs the module directly.
        times: how often the module was called.
        memory: memory of each device at the end of the trace; peaks are over all its points.
    """

    call: DataParallelCall
    replicas: tuple[Replica, ...]
    times: int
    memory: dict[DeviceId, DeviceMemory]

    @property
    def wrapper(self) -> str:
        """Path of the DataParallel module."""
        return self.call.wrapper

    @property
    def source(self) -> DeviceId:
        """Where the model lives and its gradients come together: the first of `device_ids`."""
        return self.call.device_ids[0]

    @property
    def gather_point(self) -> DeviceId | None:
        """Where the outputs were collected, or were to be collected when that failed; None without outputs."""
        for replica in self.replicas:
            if replica.gathered_on or replica.outputs:
                return self.replicas[0].gathered_on or self.call.output_device
        return None

    @property
    def batch_on(self) -> DeviceId:
        """Where the batch came from; the first device if no input of a replica is known."""
        for replica in self.replicas:
            if replica.inputs:
                return replica.inputs[0].source
        return self.source

    @property
    def samples(self) -> int:
        """Length of the whole batch."""
        return total(self.replicas, "samples")

    @property
    def gathered_bytes(self) -> int:
        """Bytes of all outputs, which the gather point has to hold."""
        return total(self.replicas, "output_bytes")

    @property
    def crossed_bytes(self) -> int:
        """Bytes of outputs that came to the gather point from other devices."""
        return sum(replica.output_bytes for replica in self.replicas if replica.device != self.gather_point)

    @property
    def reduced_bytes(self) -> int:
        """Bytes of gradients that came back in backward."""
        return total(self.replicas, "gradient_bytes")

    @property
    def idle(self) -> tuple[DeviceId, ...]:
        """Devices that the batch did not reach."""
        if self.replicas:
            return self.call.device_ids[len(self.replicas) :]
        return ()

    def peak_on(self, device: DeviceId) -> int:
        """The highest allocation of a device: by the end of the step where that is known, else by the gather; 0 unknown."""
        peaks = [replica.peak_bytes for replica in self.replicas if replica.device == device]
        if device in self.memory:
            peaks.append(self.memory[device].peak)
        return max(peaks, default=0)


def parallel_calls(trace: Trace) -> tuple[ParallelCall, ...]:
    """Return one entry for each wrapper that ran, in the order of their first call."""
    memory = {curve.device: curve.end for curve in trace.memory}
    found = []
    for calls in group_by(trace.parallel, attrgetter("wrapper")).values():
        last = calls[-1]
        replicas = tuple(each for each in trace.replicas if each.call == last.number)
        found.append(ParallelCall(last, replicas, len(calls), memory))
    return tuple(found)
