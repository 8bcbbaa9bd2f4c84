"""DataParallel as it ran: the batch cut, the replicas, what the gather point costs; and all of it as a drawing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from devwidget.records.device import DeviceId
from devwidget.records.memory import DeviceMemory
from devwidget.records.parallel import DataParallelCall, Piece, Replica
from devwidget.records.trace import Trace


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
        return self.replicas[0].gathered_on if self.replicas else None

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
        return sum(replica.samples for replica in self.replicas)

    @property
    def gathered_bytes(self) -> int:
        """Bytes of all outputs, which the gather point has to hold."""
        return sum(replica.output_bytes for replica in self.replicas)

    @property
    def crossed_bytes(self) -> int:
        """Bytes of outputs that came to the gather point from other devices."""
        return sum(replica.output_bytes for replica in self.replicas if replica.device != self.gather_point)

    @property
    def copied_bytes(self) -> int:
        """Bytes of parameters and buffers copied to the other devices."""
        return sum(replica.parameter_bytes for replica in self.replicas)

    @property
    def reduced_bytes(self) -> int:
        """Bytes of gradients that came back in backward."""
        return sum(replica.gradient_bytes for replica in self.replicas)

    @property
    def trains(self) -> bool:
        """A loss was computed from the outputs, or memory ran out before it was."""
        return self.call.backward or (self.call.with_grad and self.error.startswith("OutOfMemoryError"))

    @property
    def idle(self) -> tuple[DeviceId, ...]:
        """Devices that the batch did not reach."""
        return self.call.device_ids[len(self.replicas) :] if self.replicas else ()

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


Step = Literal["scatter", "replicate", "gather", "reduce"]
Span = tuple[float, float]
LEFT, MIDDLE, RIGHT = (0.0, 0.2), (0.34, 0.67), (0.81, 1.0)
_CUT_OF_BATCH, _CUT_OF_OUTPUTS = (0.165, 0.2), (0.81, 0.845)
_GAP, _FILL = 0.025, 0.86


@dataclass(frozen=True, slots=True)
class FlowBox:
    """A place: the batch, the model, a replica, the gathered outputs, the gradients. `y` grows downwards, 0 to 1."""

    what: Literal["batch", "model", "replica", "outputs", "gradients"]
    device: DeviceId
    x: Span
    y: Span
    number: int = -1


@dataclass(frozen=True, slots=True)
class Ribbon:
    """A copy: from a span of the left edge to one of the right; `crosses` is False where data stays on its device."""

    step: Step
    number: int
    source: DeviceId
    target: DeviceId
    bytes: int
    x: Span
    start: Span
    end: Span

    @property
    def crosses(self) -> bool:
        """Data is copied to another device."""
        return self.source != self.target


@dataclass(frozen=True, slots=True)
class Flow:
    """The drawing. `scale` is height for each byte; `cuts` are the borders of the parts in the batch and in the outputs."""

    boxes: tuple[FlowBox, ...]
    ribbons: tuple[Ribbon, ...]
    cuts: tuple[tuple[Span, float], ...]
    scale: float


def draw_flow(call: ParallelCall) -> Flow:
    """Lay out a call that has replicas."""
    rows = _share_span([max(each.samples, 0.7 * call.samples / len(call.replicas), 1) for each in call.replicas], 0, 1, _GAP)
    batch = _share_span([max(1, each.samples) for each in call.replicas], 0, 0.5 - _GAP, 0)
    foot = 0.5 - _GAP if call.call.backward else 1.0
    outputs = _share_span([max(1, each.output_bytes) for each in call.replicas], 0, foot, 0)
    drawn = list(_find_strands(call, rows, batch, outputs))
    scale = min((room * _FILL / size for size, room in _strand_rooms(drawn)), default=1.0)
    ribbons = tuple(_make_ribbon(strand, scale) for strand in drawn)
    joined = outputs[:-1] if call.gather_point is not None else []
    cuts = (*((_CUT_OF_BATCH, bottom) for _, bottom in batch[:-1]), *((_CUT_OF_OUTPUTS, bottom) for _, bottom in joined))
    return Flow(tuple(_place_boxes(call, rows, foot)), ribbons, cuts, scale)


def _place_boxes(call: ParallelCall, rows: list[Span], foot: float) -> Iterator[FlowBox]:
    yield FlowBox("batch", call.batch_on[0] if call.batch_on else call.source, LEFT, (0, 0.5 - _GAP))
    yield FlowBox("model", call.source, LEFT, (0.5 + _GAP, 1))
    for replica, row in zip(call.replicas, rows, strict=True):
        yield FlowBox("replica", replica.device, MIDDLE, row, replica.number)
    if call.gather_point is not None:
        yield FlowBox("outputs", call.gather_point, RIGHT, (0, foot))
    if call.call.backward:
        yield FlowBox("gradients", call.source, RIGHT, (0.5 + _GAP, 1))


@dataclass(frozen=True, slots=True)
class _Strand:
    """A ribbon before its scale is known: where its middle line begins and ends, and the room at each end."""

    step: Step
    number: int
    source: DeviceId
    target: DeviceId
    bytes: int
    x: Span
    middle: Span
    room: float


def _find_strands(call: ParallelCall, rows: list[Span], batch: list[Span], outputs: list[Span]) -> Iterator[_Strand]:
    others = [each for each in call.replicas if each.parameter_bytes] or call.replicas[1:]
    foot = 0.5 + _GAP, 1.0
    stack = dict(zip([each.number for each in others], _share_span([1] * len(others), *foot, 0), strict=True))
    inward, outward = (LEFT[1], MIDDLE[0]), (MIDDLE[1], RIGHT[0])
    for each, row, cell, out in zip(call.replicas, rows, batch, outputs, strict=True):
        upper, lower = _halve_span(row)
        came = each.inputs[0].source if each.inputs else call.source
        yield _make_strand("scatter", each, came, each.device, each.input_bytes, inward, cell, upper)
        if each.parameter_bytes:
            yield _make_strand(
                "replicate", each, call.source, each.device, each.parameter_bytes, inward, stack.get(each.number, foot), lower
            )
        if call.gather_point is not None:
            yield _make_strand("gather", each, each.device, call.gather_point, each.output_bytes, outward, upper, out)
        if each.gradient_bytes:
            yield _make_strand(
                "reduce", each, each.device, call.source, each.gradient_bytes, outward, lower, stack.get(each.number, foot)
            )


def _make_strand(
    step: Step, replica: Replica, source: DeviceId, target: DeviceId, size: int, x: Span, start: Span, end: Span
) -> _Strand:
    room = min(start[1] - start[0], end[1] - end[0])
    return _Strand(step, replica.number, source, target, size, x, (_middle_of(start), _middle_of(end)), room)


def _strand_rooms(strands: list[_Strand]) -> Iterator[tuple[int, float]]:
    return ((strand.bytes, strand.room) for strand in strands if strand.bytes)


def _make_ribbon(strand: _Strand, scale: float) -> Ribbon:
    half = strand.bytes * scale / 2
    start, end = strand.middle
    return Ribbon(strand.step, strand.number, strand.source, strand.target, strand.bytes, strand.x,
                  (start - half, start + half), (end - half, end + half))  # fmt: skip


def _share_span(weights: list[float] | list[int], top: float, bottom: float, gap: float) -> list[Span]:
    """A span cut by weight."""
    scale = (bottom - top - gap * (len(weights) - 1)) / (sum(weights) or 1)
    spans = []
    for weight in weights:
        spans.append((top, top + weight * scale))
        top += weight * scale + gap
    return spans


def _halve_span(span: Span) -> tuple[Span, Span]:
    middle = _middle_of(span)
    return (span[0], middle), (middle, span[1])


def _middle_of(span: Span) -> float:
    return (span[0] + span[1]) / 2
