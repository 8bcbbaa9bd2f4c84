"""What a step prints, warns of, logs and displays has been printed, warned of, logged and displayed once already."""

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
        for owner, name in _list_writers():
            listen(own.are_here, owner, name, _drop_output, undo)
        yield own


def _drop_output(original: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Stands in for what would write."""


def _list_writers() -> Iterator[tuple[Any, str]]:
    for stream in (sys.stdout, sys.stderr):
        if not hasattr(stream, "__dict__"):
            raise NotTried(Message("what it prints cannot be kept back from a `{kind}`", kind=type(stream).__name__))
        yield stream, "write"
    yield warnings, "showwarning"
    yield logging.Logger, "handle"
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        yield shell.display_pub, "publish"
