"""The lines that a process runs now, read from another thread."""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from devwidget.capture.source_code.call_sites import is_library, is_own
from devwidget.records.site import Site

_MOST = 24


def main_frames() -> list[FrameType]:
    """The frames of the main thread, the innermost first."""
    return list(_upwards(sys._current_frames().get(threading.main_thread().ident or 0)))


def _upwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def stack_of(frames: list[FrameType]) -> tuple[Site, ...]:
    """The user's lines, and the innermost of all; that of a library says what it waits for."""
    kept = [
        frame
        for at, frame in enumerate(frames)
        if not is_own(frame.f_code.co_filename) and (at == 0 or not is_library(frame.f_code.co_filename))
    ]
    return tuple(map(_site, reversed(kept[:_MOST])))


def _site(frame: FrameType) -> Site:
    code, line = frame.f_code, frame.f_lineno or frame.f_code.co_firstlineno
    return Site(code.co_filename, line, linecache.getline(code.co_filename, line).strip(), code.co_name)


def is_in_step(frames: list[FrameType]) -> bool:
    """Whether a module is called or backward runs: while they do, FSDP gathers what it needs."""
    return any(frame.f_code.co_name in _STEPS and is_library(frame.f_code.co_filename) for frame in frames)


_STEPS = frozenset({"_call_impl", "_engine_run_backward", "run_backward"})
"""Functions of torch below which forward and backward run."""
