"""When things happened: places in a trace as seconds, read off the events whose time is known."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace

from devwidget.records.parallel import DataParallelCall
from devwidget.records.trace import Trace


def with_real_times(trace: Trace) -> Trace:
    """A trace with the times that say something of speed: virtual GPUs compute on the CPU, and what they took is left out."""
    if not trace.virtual_gpus:
        return trace
    return replace(
        trace,
        seconds=0.0,
        moves=tuple(replace(each, seconds=0.0) for each in trace.moves),
        ops=tuple(replace(each, started=0.0) for each in trace.ops),
        modules=tuple(replace(each, seconds=0.0, started=0.0) for each in trace.modules),
        replicas=tuple(replace(each, seconds=0.0, started=0.0) for each in trace.replicas),
        parallel=tuple(map(_drop_times, trace.parallel)),
    )


def _drop_times(call: DataParallelCall) -> DataParallelCall:
    return replace(
        call, started=0.0, seconds=0.0, scatter_seconds=0.0, replicate_seconds=0.0, forward_seconds=0.0, gather_seconds=0.0
    )


class Clock:
    """Seconds after the start of a recording, for every place in it.

    Operators and modules were timed as they began; between two of them time is taken to pass evenly.

    Attributes:
        runs: whether anything was timed; files of older versions have the times of modules alone.
    """

    def __init__(self, trace: Trace) -> None:
        known = sorted(_known_times(trace))
        self._places = [place for place, _ in known]
        self._seconds = list(itertools.accumulate((seconds for _, seconds in known), max))  # threads overtake each other
        self.runs = bool(self._seconds) and self._seconds[-1] > 0

    def at(self, place: float) -> float:
        """Seconds at a place."""
        after = bisect_right(self._places, place)
        if not self.runs or after == len(self._places):
            if self.runs:
                return self._seconds[-1]
            return 0.0
        if after == 0:
            return self._seconds[0]
        (first, last), (start, end) = self._places[after - 1 : after + 1], self._seconds[after - 1 : after + 1]
        return start + (end - start) * (place - first) / (last - first)


def _known_times(trace: Trace) -> Iterator[tuple[float, float]]:
    yield from ((op.number, op.started) for op in trace.ops if op.started)
    for module in trace.modules:
        yield module.number, module.started
        if module.calls == 1 and module.stopped >= 0:
            yield module.stopped, module.started + module.seconds
    events = [event.number for events in (trace.ops, trace.moves, trace.faults) for event in events]
    last = max([0, *events, *(max(event.number, event.stopped) for event in trace.modules)])
    yield last + 1, trace.seconds
