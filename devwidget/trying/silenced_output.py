"""What a step prints, warns of and logs has been printed, warned of and logged once already."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, cast

from devwidget.capture.patching.registry import Patch, Wrapper, make_patch
from devwidget.capture.undo import Undo
from devwidget.records.schema.message import Message
from devwidget.trying.edited_code import NotTried
from devwidget.trying.side_effects import OwnThreads


@contextlib.contextmanager
def silence_trial() -> Iterator[OwnThreads]:
    """Drop what the threads of a trial write, and nothing of others; an error that a warning has become is raised as before.

    The streams stay what they are, wherever somebody holds them: only their methods that write are replaced.

    Raises:
        NotTried: if a stream is of a kind whose methods cannot be replaced.
    """
    own = OwnThreads()
    with Undo() as undo, own.inside():
        for patch in (*_silence_streams(own), *_silence_reports(own)):
            undo.enter_context(patch)
        yield own


def _silence_streams(own: OwnThreads) -> Iterator[Patch]:
    streams = {id(each): each for each in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__) if each is not None}
    for stream in streams.values():
        if not hasattr(stream, "__dict__"):
            raise NotTried(Message("what it prints cannot be kept back from a `{kind}`", kind=type(stream).__name__))
        yield make_patch(stream, "write", _drop_output(own, len))
        buffer = getattr(stream, "buffer", None)
        if hasattr(buffer, "__dict__"):
            yield make_patch(buffer, "write", _drop_output(own, len))
            # A flush would write what others have written before it into a buffer that drops it.
            yield make_patch(stream, "flush", _drop_output(own, _return_nothing))


def _silence_reports(own: OwnThreads) -> Iterator[Patch]:
    yield make_patch(warnings, "showwarning", _drop_output(own, _forget_warning))
    yield make_patch(logging.Logger, "handle", _drop_output(own, _return_nothing))
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    publisher = getattr(shell, "display_pub", None)
    if "publish" in dir(publisher) and hasattr(publisher, "__dict__"):
        yield make_patch(publisher, "publish", _drop_output(own, _return_nothing))


def _drop_output(own: OwnThreads, result: Callable[..., Any]) -> Wrapper:
    """Replaces a method: the threads of the trial get a result, all others what they ask for."""

    def wrapper(below: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **kwargs: Any) -> Any:
            if own.are_here():
                return result(*args, **kwargs)
            return below(*args, **kwargs)

        return write

    return wrapper


def _return_nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _forget_warning(message: Any, category: Any, filename: str, lineno: int, *args: Any, **kwargs: Any) -> None:
    """Have a warning that nobody saw be new again: modules keep which they have shown."""
    text, frame = str(message), cast(FrameType | None, sys._getframe(1))
    while frame is not None and frame.f_code.co_filename != filename:
        frame = frame.f_back
    if frame is not None:
        shown = frame.f_globals.get("__warningregistry__", {})
    else:
        shown = {}
    for key in ((text, category, lineno), (text, category, 0)):
        shown.pop(key, None)
