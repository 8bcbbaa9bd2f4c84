"""Read the exception that ends a recording from its traceback while that still exists."""

from __future__ import annotations

import linecache
import sys
from types import FrameType

import torch

from devwidget.capture import torch_internals
from devwidget.capture.explain.traceback_frames import innermost_user, steps_to_show, traceback_frames
from devwidget.capture.source_code.call_sites import raw_site, to_site
from devwidget.capture.source_code.stack import STEP, owners, steps_down, user_frame
from devwidget.records.explanation import Failure

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
