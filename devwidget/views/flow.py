"""A DataParallel call as a drawing: boxes for places, ribbons for copies, their thickness bytes to one scale."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from devwidget.records.device import DeviceId
from devwidget.records.parallel import Replica
from devwidget.views.parallel import ParallelCall

Step = Literal["scatter", "replicate", "gather", "reduce"]
Span = tuple[float, float]
LEFT, MIDDLE, RIGHT = (0.0, 0.2), (0.34, 0.67), (0.81, 1.0)
_CUT_OF_BATCH, _CUT_OF_OUTPUTS = (0.165, 0.2), (0.81, 0.845)
_GAP, _FILL = 0.025, 0.86


@dataclass(frozen=True, slots=True)
class Box:
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

    boxes: tuple[Box, ...]
    ribbons: tuple[Ribbon, ...]
    cuts: tuple[tuple[Span, float], ...]
    scale: float


def flow(call: ParallelCall) -> Flow:
    """Lay out a call that has replicas."""
    rows = _shares([max(each.samples, 0.7 * call.samples / len(call.replicas), 1) for each in call.replicas], 0, 1, _GAP)
    batch = _shares([max(1, each.samples) for each in call.replicas], 0, 0.5 - _GAP, 0)
    foot = 0.5 - _GAP if call.call.backward else 1.0
    outputs = _shares([max(1, each.output_bytes) for each in call.replicas], 0, foot, 0)
    drawn = list(_strands(call, rows, batch, outputs))
    scale = min((room * _FILL / size for size, room in _rooms(drawn)), default=1.0)
    ribbons = tuple(_ribbon(strand, scale) for strand in drawn)
    joined = outputs[:-1] if call.gather_point is not None else []
    cuts = (*((_CUT_OF_BATCH, bottom) for _, bottom in batch[:-1]), *((_CUT_OF_OUTPUTS, bottom) for _, bottom in joined))
    return Flow(tuple(_boxes(call, rows, foot)), ribbons, cuts, scale)


def _boxes(call: ParallelCall, rows: list[Span], foot: float) -> Iterator[Box]:
    yield Box("batch", call.batch_on[0] if call.batch_on else call.source, LEFT, (0, 0.5 - _GAP))
    yield Box("model", call.source, LEFT, (0.5 + _GAP, 1))
    for replica, row in zip(call.replicas, rows, strict=True):
        yield Box("replica", replica.device, MIDDLE, row, replica.number)
    if call.gather_point is not None:
        yield Box("outputs", call.gather_point, RIGHT, (0, foot))
    if call.call.backward:
        yield Box("gradients", call.source, RIGHT, (0.5 + _GAP, 1))


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


def _strands(call: ParallelCall, rows: list[Span], batch: list[Span], outputs: list[Span]) -> Iterator[_Strand]:
    others = [each for each in call.replicas if each.parameter_bytes] or call.replicas[1:]
    foot = 0.5 + _GAP, 1.0
    stack = dict(zip([each.number for each in others], _shares([1] * len(others), *foot, 0), strict=True))
    inward, outward = (LEFT[1], MIDDLE[0]), (MIDDLE[1], RIGHT[0])
    for each, row, cell, out in zip(call.replicas, rows, batch, outputs, strict=True):
        upper, lower = _halves(row)
        came = each.inputs[0].source if each.inputs else call.source
        yield _strand("scatter", each, came, each.device, each.input_bytes, inward, cell, upper)
        if each.parameter_bytes:
            yield _strand(
                "replicate", each, call.source, each.device, each.parameter_bytes, inward, stack.get(each.number, foot), lower
            )
        if call.gather_point is not None:
            yield _strand("gather", each, each.device, call.gather_point, each.output_bytes, outward, upper, out)
        if each.gradient_bytes:
            yield _strand(
                "reduce", each, each.device, call.source, each.gradient_bytes, outward, lower, stack.get(each.number, foot)
            )


def _strand(
    step: Step, replica: Replica, source: DeviceId, target: DeviceId, size: int, x: Span, start: Span, end: Span
) -> _Strand:
    room = min(start[1] - start[0], end[1] - end[0])
    return _Strand(step, replica.number, source, target, size, x, (_middle(start), _middle(end)), room)


def _rooms(strands: list[_Strand]) -> Iterator[tuple[int, float]]:
    return ((strand.bytes, strand.room) for strand in strands if strand.bytes)


def _ribbon(strand: _Strand, scale: float) -> Ribbon:
    half = strand.bytes * scale / 2
    start, end = strand.middle
    return Ribbon(strand.step, strand.number, strand.source, strand.target, strand.bytes, strand.x,
                  (start - half, start + half), (end - half, end + half))  # fmt: skip


def _shares(weights: list[float] | list[int], top: float, bottom: float, gap: float) -> list[Span]:
    """A span cut by weight."""
    scale = (bottom - top - gap * (len(weights) - 1)) / (sum(weights) or 1)
    spans = []
    for weight in weights:
        spans.append((top, top + weight * scale))
        top += weight * scale + gap
    return spans


def _halves(span: Span) -> tuple[Span, Span]:
    middle = _middle(span)
    return (span[0], middle), (middle, span[1])


def _middle(span: Span) -> float:
    return (span[0] + span[1]) / 2
