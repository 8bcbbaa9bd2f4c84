"""When things happened: places in a trace as seconds, read off the events whose time is known."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any

from devwidget.records.trace import Trace


def with_real_times(trace: Trace) -> Trace:
    """Remove the times of a trace on virtual GPUs, which compute on the CPU. Other traces keep their times."""
    if not trace.virtual_gpus:
        return trace
    steps = dict.fromkeys(("scatter_seconds", "replicate_seconds", "forward_seconds", "gather_seconds"), 0.0)
    return replace(
        trace,
        seconds=0.0,
        moves=_replace_all(trace.moves, seconds=0.0),
        ops=_replace_all(trace.ops, started=0.0),
        modules=_replace_all(trace.modules, seconds=0.0, started=0.0),
        replicas=_replace_all(trace.replicas, seconds=0.0, started=0.0),
        parallel=_replace_all(trace.parallel, started=0.0, seconds=0.0, **steps),
    )


def _replace_all(records: Iterable[Any], **times: float) -> tuple[Any, ...]:
    return tuple(replace(record, **times) for record in records)


def last_place(trace: Trace) -> int:
    """Find the last place in a trace."""
    events = itertools.chain(trace.ops, trace.moves, trace.faults, trace.modules)
    places: list[int] = [0, *map(attrgetter("number"), events), *map(attrgetter("stopped"), trace.modules)]
    return max(places)


class Clock:
    """Seconds after the start of a recording, for every place in it.

    Operators and modules were timed as they began; between two of them time is taken to pass evenly.

    Attributes:
        runs: whether anything was timed.
    """

    def __init__(self, trace: Trace) -> None:
        known = sorted(_known_times(trace))
        self._places = [place for place, _ in known]
        self._seconds = list(itertools.accumulate((seconds for _, seconds in known), max))  # threads overtake each other
        self.runs = bool(self._seconds) and self._seconds[-1] > 0

    def at(self, place: float) -> float:
        """Seconds at a place."""
        if not self.runs:
            return 0.0
        after = bisect_right(self._places, place)
        if after == len(self._places):
            return self._seconds[-1]
        if after == 0:
            return self._seconds[0]
        (first, last), (start, end) = self._places[after - 1 : after + 1], self._seconds[after - 1 : after + 1]
        return start + (end - start) * (place - first) / (last - first)


def _known_times(trace: Trace) -> Iterator[tuple[float, float]]:
    for op in trace.ops:
        if op.started:
            yield op.number, op.started
    for module in trace.modules:
        yield module.number, module.started
        if module.calls == 1 and module.stopped >= 0:
            yield module.stopped, module.started + module.seconds
    yield last_place(trace) + 1, trace.seconds
