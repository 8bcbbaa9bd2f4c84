"""A trace as Chrome's trace events, which https://ui.perfetto.dev and chrome://tracing open.

Source of the format: the document "Trace Event Format" of the Chromium project; times are microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from devwidget.records.memory import ROLES
from devwidget.records.schema.message import Message
from devwidget.records.trace import ModuleEvent, Trace
from devwidget.report.style.words import first_line, module_words, part_name, site_words, tensor_words
from devwidget.report.writers import Writer
from devwidget.views.clock import Clock, with_real_times

Json = dict[str, Any]
_MODULES, _MOVES, _MEMORY = 1, 2, 3
_TRACKS = {_MODULES: "modules", _MOVES: "moves between devices", _MEMORY: "memory"}


def perfetto_json(trace: Trace) -> str:
    """Slices for the first call of each module and for moves, counters for the memory of each device, marks for findings.

    Without times, as in a memory snapshot of torch, or with times of virtual GPUs, an event takes a
    microsecond.
    """
    trace = with_real_times(trace)
    clock = Clock(trace)

    def microseconds_at(place: float) -> float:
        return clock.at(place) * 1e6 if clock.runs else place

    events = [
        *_name_tracks(),
        *_module_slices(trace, microseconds_at),
        *_move_slices(trace, microseconds_at),
        *_memory_counters(trace, microseconds_at),
        *_finding_marks(trace, microseconds_at),
    ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _name_tracks() -> Iterator[Json]:
    for number, name in _TRACKS.items():
        yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}


def _module_slices(trace: Trace, at: Any) -> Iterator[Json]:
    for event in trace.modules:
        start = event.started * 1e6 if event.started else at(event.number)
        args = {"class": event.class_name, "calls": event.calls, "out": ", ".join(map(str, event.outputs))}
        yield _make_slice(module_words(event.path), start, _end_of_module(event, at) - start, _MODULES, event.replica + 1, args)


def _end_of_module(event: ModuleEvent, at: Any) -> float:
    is_timed = event.seconds and (event.calls == 1 or event.stopped < 0)
    once = (event.started + event.seconds / max(event.calls, 1)) * 1e6
    if is_timed:
        return once
    return float(at(max(event.stopped, event.number)))


def _move_slices(trace: Trace, at: Any) -> Iterator[Json]:
    for move in trace.moves:
        args = {
            "bytes": move.bytes,
            "times": move.count,
            "cause": move.cause,
            "line": site_words(move.site),
            "code": first_line(move.site),
        }
        name = f"{move.source} -> {move.target} {tensor_words(move.dtype, move.shape)}"
        yield _make_slice(name, at(move.number), move.seconds * 1e6, _MOVES, 0, args)


def _memory_counters(trace: Trace, at: Any) -> Iterator[Json]:
    for curve in trace.memory:
        used = [role for role in ROLES if any(getattr(point, role) for point in curve.points)]
        for point in curve.points:
            args = {part_name(role): getattr(point, role) for role in used}
            yield {"ph": "C", "name": str(curve.device), "ts": at(point.number), "pid": _MEMORY, "args": args}


def _finding_marks(trace: Trace, at: Any) -> Iterator[Json]:
    for finding in trace.findings:
        for number in finding.explains[:1]:
            args = {"what": finding.headline, "line": site_words(finding.fault), "made": site_words(finding.birth)}
            yield {"ph": "i", "s": "g", "name": finding.kind, "ts": at(number), "pid": _MODULES, "tid": 0, "args": args}


def _make_slice(name: str, start: float, length: float, process: int, thread: int, args: Json) -> Json:
    return {"ph": "X", "name": name, "ts": start, "dur": max(length, 0.0), "pid": process, "tid": thread, "args": args}


WRITERS = {
    "perfetto": Writer(
        Message("modules, transfers and memory over time, for ui.perfetto.dev or chrome://tracing"),
        lambda trace, root: perfetto_json(trace),
    )
}
