"""The frames of a traceback, at the line where the exception passed through them."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType, TracebackType
from typing import Any, cast

import torch

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import is_among
from devwidget.capture.source_code.call_sites import raw_site, to_site
from devwidget.capture.source_code.stack import STEP, is_library, is_own, is_users_code, owners, steps_down, user_frame
from devwidget.capture.source_code.statements import statement_text
from devwidget.records.explanation import Failure
from devwidget.records.site import Site

CAUGHT = re.compile(r"Caught (\w+) in replica (\d+) on device \d+")
IN_LOADER = re.compile(r"Caught \w+ in DataLoader worker process")
FRAME_IN_TEXT = re.compile(r'^  File "(.+)", line (\d+), in (\S+)$', re.MULTILINE)


@dataclass(slots=True, eq=False)
class TracebackFrame:
    """A frame at the line that failed.

    The real frame may have moved on: a frame that caught the exception is now in its `except` block.
    """

    f_code: CodeType
    f_globals: dict[str, Any]
    f_lineno: int
    f_lasti: int
    f_back: FrameType | None
    frame: FrameType

    @property
    def f_locals(self) -> Any:
        """Return the current variables."""
        return self.frame.f_locals


def chain_of(error: BaseException | None, *, hidden: bool = False) -> Iterator[BaseException]:
    """Yield an exception and its causes, each once; `hidden` includes those that `raise ... from None` hides."""
    seen: list[BaseException] = []
    while error is not None and not is_among(error, seen):
        seen.append(error)
        yield error
        if error.__cause__ is None and error.__suppress_context__ and not hidden:
            return
        cause = error.__cause__  # not `or`: an exception may have a `__bool__`
        error = cause if cause is not None else error.__context__


def callers_of(cause: BaseException, outer: Sequence[TracebackType]) -> list[TracebackType]:
    """Return the steps above a caught exception, whose own traceback begins in the frame that caught it.

    Args:
        cause: the exception that was caught.
        outer: the whole traceback of the exception that was raised in its place.
    """
    first = cause.__traceback__
    for at, step in enumerate(outer):
        if first is not None and step.tb_frame is first.tb_frame:
            return list(outer[:at])
    return []


def traceback_frames(trace: TracebackType | None, above: Sequence[TracebackType] = ()) -> list[FrameType]:
    """Return the frames of a traceback, outermost first, without devwidget's frames; the frames of `above` come first."""
    found: list[FrameType] = []
    for step in steps_to_show(trace, above):
        code, back = step.tb_frame.f_code, found[-1] if found else None
        past = TracebackFrame(code, step.tb_frame.f_globals, step.tb_lineno, step.tb_lasti, back, step.tb_frame)
        found.append(cast(FrameType, past))  # everything that reads frames here reads no more of them than this
    return found


def site_in_worker(text: str) -> Site | None:
    """Return the user's innermost line in the traceback that the exception of a worker contains as text."""
    for file, line, name in reversed(FRAME_IN_TEXT.findall(text)):
        if not is_library(file):
            return Site(file, int(line), statement_text(file, int(line)), name)
    return None


def innermost_user(frames: Sequence[FrameType]) -> FrameType | None:
    """Return the innermost frame of user code."""
    return next((frame for frame in reversed(frames) if is_users_code(frame.f_code)), None)


def list_user_sites(error: BaseException) -> list[Site]:
    """Return the user's lines that an exception passed through, outermost first."""
    found = []
    for frame in traceback_frames(error.__traceback__):
        if is_users_code(frame.f_code):
            code = frame.f_code
            found.append(Site(code.co_filename, frame.f_lineno, "", code.co_name))
    return found


def steps_to_show(trace: TracebackType | None, above: Sequence[TracebackType] = ()) -> Iterator[TracebackType]:
    """Yield a traceback without devwidget's frames.

    The innermost user frame and the library calls below it stay; everything below a devwidget frame is removed.
    """
    steps = [*above, *steps_down(trace)]
    last = max((at for at, step in enumerate(steps) if not is_library(step.tb_frame.f_code.co_filename)), default=-1)
    for at, step in enumerate(steps):
        if not is_own(step.tb_frame.f_code.co_filename):
            yield step
        elif at > last:
            return


# The exception that ends a recording, read while its traceback still exists.


MOST_FRAMES = 60
"""Frames kept of a traceback. Infinite recursion has a thousand equal ones."""


def failure_of(error: BaseException, message: str, module: str | None) -> Failure:
    """Return a record of an exception.

    Args:
        error: the exception.
        message: its text.
        module: path of the innermost module that raised it.
    """
    user = innermost_user(traceback_frames(error.__traceback__))
    codes = [step.tb_frame.f_code for step in steps_down(error.__traceback__)]
    if user is None and STEP not in [owners[code.co_filename] for code in codes]:
        user = user_frame(sys._getframe(1))  # the one whose block this is
    site = to_site(raw_site(user))
    full = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    if torch_internals.module_call not in codes:  # the path is that of an exception that the loop has caught
        module = None
    return Failure(type(error).__name__, message, site, module, tuple(_words(error)), full)


def _words(error: BaseException) -> list[str]:
    shown = list(steps_to_show(error.__traceback__)) or list(steps_down(error.__traceback__))
    # A signal that strikes as a function begins has no line there.
    steps = [_step(step.tb_frame, step.tb_lineno or step.tb_frame.f_code.co_firstlineno) for step in shown]
    if len(steps) <= MOST_FRAMES:
        return steps
    return [*steps[: MOST_FRAMES // 2], *steps[-MOST_FRAMES // 2 :]]


def _step(frame: FrameType, line: int) -> str:
    file = frame.f_code.co_filename
    return f"{file}:{line} in {frame.f_code.co_name}: {linecache.getline(file, line, frame.f_globals).strip()}"
