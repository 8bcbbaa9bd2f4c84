"""The frames of a traceback, at the line where the exception passed through them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType, TracebackType
from typing import Any, cast

from devwidget.capture.object_fields import is_among
from devwidget.capture.source_code.stack import is_library, is_own, is_users_code, steps_down
from devwidget.capture.source_code.statements import statement_text
from devwidget.records.site import Site

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
