"""Which files are read here: memory snapshots and traces of the profiler."""

from __future__ import annotations

from typing import Any

from devwidget.extras.profiles.kineto import read_kineto
from devwidget.extras.profiles.memory_snapshot import read_memory_snapshot
from devwidget.records.trace import Trace


def read_content(name: str, content: Any, size: int) -> Trace | None:
    """Read what torch wrote; None for the file of another tool."""
    match content:
        case {"traceEvents": _}:
            return read_kineto(content)
        case {"segments": _} | {"device_traces": _}:
            return read_memory_snapshot(content, size)
        case _:
            return None
