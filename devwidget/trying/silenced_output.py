"""Suppress what a trial prints, warns, logs and displays: the first run has already shown it."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from devwidget.capture.patching.registry import listen
from devwidget.capture.undo import Undo
from devwidget.records.schema.message import Message
from devwidget.records.site import find_shell
from devwidget.trying.edited_code import NotTried
from devwidget.trying.side_effects import OwnThreads


@contextlib.contextmanager
def silence_trial() -> Iterator[OwnThreads]:
    """Suppress the output of a trial's threads. A warning that is turned into an error is still raised.

    Only the write methods are replaced, so references to the streams stay valid.

    Raises:
        NotTried: if the methods of a stream cannot be replaced.
    """
    own = OwnThreads()
    with Undo() as undo, own.inside():
        for owner, name in _list_writers():
            listen(own.are_here, owner, name, _drop_output, undo)
        yield own


def _drop_output(original: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Replacement for a function that writes."""


def _list_writers() -> Iterator[tuple[Any, str]]:
    for stream in (sys.stdout, sys.stderr):
        if not hasattr(stream, "__dict__"):
            raise NotTried(Message("its output to a `{kind}` cannot be suppressed", kind=type(stream).__name__))
        yield stream, "write"
    yield warnings, "showwarning"
    yield logging.Logger, "handle"
    shell = find_shell()
    if shell is not None:
        yield shell.display_pub, "publish"
