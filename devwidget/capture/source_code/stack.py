"""Whose code runs: the owner of each frame of a stack, and the user's frames in it."""

from __future__ import annotations

import pathlib
import sysconfig
from collections.abc import Iterator
from enum import Enum, auto
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any

import torch
from torch.overrides import handle_torch_function

from devwidget.capture.object_fields import is_a


class Owner(Enum):
    """Whose a file is.

    Two files mark where the user's lines end: ours that runs a step, which no line of theirs has called, and torch's that runs
    backward, on whatever line asked for it.
    """

    USER = auto()
    LIBRARY = auto()
    """An installed package other than torch."""
    TORCH = auto()
    PYTHON = auto()
    """The standard library, and generated code."""
    OURS = auto()
    STEP = auto()
    ENGINE = auto()


USER, LIBRARY, STEP, ENGINE = Owner.USER, Owner.LIBRARY, Owner.STEP, Owner.ENGINE
"""For the two walks that each call of torch makes: an attribute of an enum takes longer to read."""
_PACKAGE = str(pathlib.Path(__file__).parents[2]) + "/"
"""As code objects name it: behind a link the resolved path is another, and our own lines would be taken for the user's."""
_PYTHON_FOLDERS = tuple(
    {str(pathlib.Path(path)) + "/" for path in sysconfig.get_paths().values()}
    - {str(pathlib.Path(sysconfig.get_path("data"))) + "/"}  # the prefix itself; people keep projects under it
)
_LIBRARY_MARKS = ("/site-packages/", "/dist-packages/")
_GENERATED = ("<frozen", "<eval_with_key", "<__")
_STEP = _PACKAGE + "capture/step/step.py"
_ENGINE = str(pathlib.Path(torch.autograd.graph.__file__))
_TORCH = str(pathlib.Path(torch.__file__).parent) + "/"
_RELAY = handle_torch_function.__code__


def _find_owner(filename: str) -> Owner:
    if filename == _STEP:
        return Owner.STEP
    if filename == _ENGINE:
        return Owner.ENGINE
    if filename.startswith(_PACKAGE):
        return Owner.OURS
    if filename.startswith(_TORCH):
        return Owner.TORCH
    if filename.startswith(_GENERATED):
        return Owner.PYTHON
    if any(mark in filename for mark in _LIBRARY_MARKS):
        return Owner.LIBRARY
    if filename.startswith(_PYTHON_FOLDERS):
        return Owner.PYTHON
    return Owner.USER


class _Owners(dict[str, Owner]):
    """Files, and whose each is."""

    def __missing__(self, filename: str) -> Owner:
        owner = self[filename] = _find_owner(filename)
        return owner


owners = _Owners()
"""For walks through many frames."""


def is_library(filename: str) -> bool:
    """True for torch, the standard library, installed packages, generated code and devwidget itself."""
    return owners[filename] is not Owner.USER


def is_users_code(code: CodeType) -> bool:
    """True for what the user has written."""
    return owners[code.co_filename] is Owner.USER


def is_users_function(value: Any) -> bool:
    """Whether a value is a function that the user has written."""
    return is_a(value, FunctionType) and is_users_code(value.__code__)


def is_own(filename: str) -> bool:
    """True for devwidget itself."""
    return filename.startswith(_PACKAGE)


def stack(frame: FrameType | None) -> Iterator[tuple[Owner, FrameType]]:
    """A frame and those that called it, the innermost first, and whose each is."""
    while frame is not None:
        yield owners[frame.f_code.co_filename], frame
        frame = frame.f_back


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Frames of user code at and above a frame, innermost first: those too that have had us run a step for them."""
    return (each for owner, each in stack(frame) if owner is Owner.USER)


def frames_at_work(frame: FrameType | None) -> Iterator[FrameType]:
    """Those of them that are part of what is watched: in a step that we run, the ones that it has called."""
    for owner, each in stack(frame):
        if owner is Owner.STEP:
            return
        if owner is Owner.USER:
            yield each


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of user code at or above `frame`, None if there is none.

    A step that we run for the user has none above it: what stands there has called us.
    """
    return next(frames_at_work(frame), None)


def caller(frame: FrameType | None) -> FrameType | None:
    """The frame that called a torch function: ours and torch's own relay are skipped."""
    while frame is not None and (frame.f_code.co_filename.startswith(_PACKAGE) or frame.f_code is _RELAY):
        frame = frame.f_back
    return frame


def steps_down(trace: TracebackType | None) -> Iterator[TracebackType]:
    """Every step of a traceback, outermost first."""
    while trace is not None:
        yield trace
        trace = trace.tb_next


def innermost_step(trace: TracebackType | None) -> TracebackType | None:
    """The step of a traceback at the user's line nearest to where the exception was raised."""
    users = [step for step in steps_down(trace) if is_users_code(step.tb_frame.f_code)]
    if users:
        return users[-1]
    return None


def is_hooked(frame: FrameType | None) -> bool:
    """Whether a hook of accelerate is at work above a frame, below the user's code."""
    for owner, each in stack(frame):
        if owner is Owner.USER:
            return False
        if each.f_globals.get("__name__") == "accelerate.hooks":
            return True
    return False
