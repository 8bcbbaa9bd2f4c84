"""Where a process is, and where an exception came from: the user's lines, and the innermost line."""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Iterable
from types import CodeType, FrameType, TracebackType

from devwidget.capture.source_code.stack import is_own, is_users_code
from devwidget.records.site import Site

_MOST = 24
_Place = tuple[FrameType, int]


INTERRUPTING: set[CodeType] = set()
"""Code of devwidget that Python runs on the main thread at a signal; the frames outside of it are the program's."""


def main_frames() -> list[FrameType]:
    """Return the frames of the main thread, innermost first."""
    # The main thread runs on meanwhile: some may have returned when they are read, but a frame that is held stays whole.
    frames, frame = list[FrameType](), sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    inside = max((at for at, each in enumerate(frames) if each.f_code in INTERRUPTING), default=-1)
    return frames[inside + 1 :]


def error_frames(trace: TracebackType | None) -> list[FrameType]:
    """Return the frames of an exception, innermost first, with their variables."""
    return [frame for frame, _ in reversed(_places_of(trace))]


def _places_of(trace: TracebackType | None) -> list[_Place]:
    """Return frames with the lines of the traceback, because a frame runs on after the exception."""
    places = []
    while trace is not None:
        places.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return places


def stack_of(frames: list[FrameType]) -> tuple[Site, ...]:
    """Return the user's lines, and the innermost line, which may be a library's and says what it waits for."""
    return _find_sites((frame, frame.f_lineno or frame.f_code.co_firstlineno) for frame in frames)


def error_stack(trace: TracebackType | None) -> tuple[Site, ...]:
    """Return the same lines for an exception."""
    return _find_sites(reversed(_places_of(trace)))


def _find_sites(places: Iterable[_Place]) -> tuple[Site, ...]:
    kept: list[Site] = []
    for at, (frame, line) in enumerate(places):
        if len(kept) < _MOST and not is_own(frame.f_code.co_filename) and (at == 0 or is_users_code(frame.f_code)):
            file = frame.f_code.co_filename
            kept.append(Site(file, line, linecache.getline(file, line).strip(), frame.f_code.co_name))
    return tuple(reversed(kept))


def is_in_step(frames: list[FrameType]) -> bool:
    """Return whether a module is called or backward runs, while FSDP gathers parameters."""
    return any(frame.f_code.co_name in _STEPS and not is_users_code(frame.f_code) for frame in frames)


# Functions of torch below which forward and backward run.
_STEPS = frozenset({"_call_impl", "_engine_run_backward", "run_backward"})
