"""Who could notice a trial: other ranks and threads, files, processes and the network."""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import logging
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from threading import get_ident
from typing import Any

import torch

from devwidget.capture.object_fields import is_a
from devwidget.capture.other_threads import running_thread
from devwidget.capture.patching.registry import listen
from devwidget.capture.undo import Undo
from devwidget.records.schema.message import Message
from devwidget.records.site import find_shell
from devwidget.records.trace import Trace
from devwidget.trying.edited_code import NotTried

MOST_SECONDS = 5.0
"""A step that took longer is not run again unless you ask: a trial and its reference may take two runs each."""


def reasons_around() -> Iterator[str]:
    """Yield why a trial could be noticed in this process: by other ranks of a job, or by other threads."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        yield Message("the job has several processes")
    if thread := running_thread():
        yield Message("another thread is running: `{name}`", name=thread)


def reasons_against_trial(trace: Trace, effects: Iterable[str]) -> Iterator[str]:
    """Yield why another run of a step could be noticed, or would take long.

    Args:
        trace: the first run.
        effects: side effects of the first run.
    """
    yield from reasons_around()
    yield from effects
    if trace.not_restored:
        yield Message("some changes of the step could not be undone")
    if trace.seconds > MOST_SECONDS:
        yield Message("the step took {seconds} s", seconds=f"{trace.seconds:.0f}")


Inside = Callable[[], contextlib.AbstractContextManager[None]]
"""Makes the context that a thread of a step enters."""


class OwnThreads:
    """The threads that work for a step. Other threads are never counted, silenced or delayed."""

    def __init__(self) -> None:
        self._idents: list[int] = []  # as often as a thread has entered

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Count the calling thread as one of them in the block."""
        ident = get_ident()
        self._idents.append(ident)
        try:
            yield
        finally:
            self._idents.remove(ident)

    def are_here(self) -> bool:
        """Return whether the calling thread is one of them."""
        return get_ident() in self._idents


class TrialWatch:
    """Watches what a step does outside of the process's memory.

    Python's audit events would report the same, but their hook cannot be removed and makes each `id` six times as slow.

    Attributes:
        own: threads that work for the step. Each of them must enter it.
        effects: messages on what the step did, each once.
    """

    def __init__(self) -> None:
        self.own, self.effects = OwnThreads(), list[str]()

    def begin_step(self, undo: Undo) -> None:
        """Watch until it is undone."""
        for owner, name, describe in _CALLS:
            listen(self.own.are_here, owner, name, functools.partial(self._note_call, describe), undo)

    def _note_call(self, describe: Callable[..., str], original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        words = describe(*args, **kwargs)
        if words and words not in self.effects:
            self.effects.append(words)
        return original(*args, **kwargs)


def _describe_open(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> str:
    if is_a(mode, str) and set(mode) & set("wax+"):
        return _describe_write(file)
    return ""


def _describe_save(obj: Any, f: Any = None, *args: Any, **kwargs: Any) -> str:
    return _describe_write(f)


def _describe_write(file: Any) -> str:
    if not issubclass(type(file), (str, bytes, os.PathLike)):
        return Message("the step wrote to an open file")
    path = os.fsdecode(file)
    if path == os.devnull:
        return ""
    return Message("the step wrote to `{file}`", file=path)


def _describe_call(name: str) -> Callable[..., str]:
    return lambda *args, **kwargs: Message("the step called `{name}`", name=name)


_CALLS: tuple[tuple[Any, str, Callable[..., str]], ...] = (
    (builtins, "open", _describe_open),
    (io, "open", _describe_open),
    (torch, "save", _describe_save),
    (subprocess.Popen, "__init__", _describe_call("subprocess.Popen")),
    *((socket.socket, name, _describe_call(f"socket.{name}")) for name in ("connect", "send", "sendall", "sendto")),
)

# What a trial would show again.


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
