"""DataParallel as it ran: the batch cut, the replicas, what the gather point costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from devwidget.records.device import DeviceId
from devwidget.records.memory import DeviceMemory
from devwidget.records.parallel import DataParallelCall, Piece, Replica
from devwidget.records.trace import Trace
from devwidget.views.sums import total


@dataclass(frozen=True, slots=True)
class ParallelCall:
    """The last call of one DataParallel module; a loop that calls it many times repeats the same picture.

    Attributes:
        call: the call itself.
        replicas: in the order of `device_ids`; none where one GPU runs the module directly.
        times: how often the module was called.
        error: what ended the recording, "" if nothing did.
        memory: what is known of each device at the end of the trace; the peaks are those of all its points.
    """

    call: DataParallelCall
    replicas: tuple[Replica, ...]
    times: int
    error: str
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
    def gathered_on(self) -> DeviceId | None:
        """Where the outputs were collected; None if they were not."""
        if self.replicas:
            return self.replicas[0].gathered_on
        return None

    @property
    def gather_point(self) -> DeviceId | None:
        """Where the outputs were collected, or were to be collected when that failed; None without outputs."""
        made = any(replica.outputs for replica in self.replicas)
        return self.gathered_on or (self.call.output_device if made else None)

    @property
    def batch_on(self) -> tuple[DeviceId, ...]:
        """Where the batch came from."""
        return tuple(dict.fromkeys(piece.source for replica in self.replicas for piece in replica.inputs))

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
    def copied_bytes(self) -> int:
        """Bytes of parameters and buffers copied to the other devices."""
        return total(self.replicas, "parameter_bytes")

    @property
    def reduced_bytes(self) -> int:
        """Bytes of gradients that came back in backward."""
        return total(self.replicas, "gradient_bytes")

    @property
    def trains(self) -> bool:
        """A loss was computed from the outputs, or memory ran out before it was."""
        return self.call.backward or (self.call.with_grad and self.error.startswith("OutOfMemoryError"))

    @property
    def idle(self) -> tuple[DeviceId, ...]:
        """Devices that the batch did not reach."""
        if self.replicas:
            return self.call.device_ids[len(self.replicas) :]
        return ()

    def find_replica(self, number: int) -> Replica:
        """The replica at a place in `device_ids`, which an own `scatter` may leave out."""
        return next(replica for replica in self.replicas if replica.number == number)

    def peak_on(self, device: DeviceId) -> int:
        """The highest allocation of a device: by the end of the step where that is known, else by the gather; 0 unknown."""
        known = self.memory[device].peak if device in self.memory else 0
        return max([known, *(replica.peak_bytes for replica in self.replicas if replica.device == device)])


def parallel_calls(trace: Trace) -> tuple[ParallelCall, ...]:
    """One entry for each wrapper that ran, in the order of their first call."""
    last = {call.wrapper: call for call in trace.parallel}
    times = Counter(call.wrapper for call in trace.parallel)
    memory = _last_memory(trace)
    replicas = {wrapper: tuple(each for each in trace.replicas if each.call == call.number) for wrapper, call in last.items()}
    return tuple(ParallelCall(last[name], replicas[name], times[name], trace.error, memory) for name in last)


def _last_memory(trace: Trace) -> dict[DeviceId, DeviceMemory]:
    """Each device as it was last; the allocator's peak only grows along a trace."""
    return {curve.device: curve.end for curve in trace.memory}


def whole_outputs(replicas: Iterable[Replica], dim: int) -> tuple[Piece, ...]:
    """Each output as it was gathered along `dim`, the largest first; numbers are gathered as a vector."""
    wholes: dict[str, Piece] = {}
    for piece in (piece for replica in replicas for piece in replica.outputs):
        before = wholes.get(piece.name)
        size = piece.bytes + (before.bytes if before else 0)
        shape = list(piece.shape or (0,))
        if -len(shape) <= dim < len(shape):  # torch gathers numbers along axis 0 alone
            shape[dim] = piece.stop
        wholes[piece.name] = Piece(piece.name, tuple(shape), piece.dtype, size, 0, piece.stop, piece.source)
    return tuple(sorted(wholes.values(), key=lambda piece: -piece.bytes))
