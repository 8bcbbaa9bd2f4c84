"""Who could notice a trial, which threads are its own, and what a step does to files, processes and the network."""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import itertools
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.interrupts import Lock
from devwidget.capture.object_fields import is_a
from devwidget.capture.other_threads import running_thread
from devwidget.capture.undo import Undo
from devwidget.records.schema.message import Message
from devwidget.records.trace import Trace

MOST_SECONDS = 5.0
"""A step that took longer is not run again unless somebody asks: a trial, and what it is held against, may take two each."""


def reasons_around() -> Iterator[str]:
    """Why trials could be noticed in this process now: by other ranks of a job, or by other threads."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        yield Message("in a job of several processes")
    if thread := running_thread():
        yield Message("another thread runs, `{name}`", name=thread)


def reasons_against_trial(trace: Trace, effects: tuple[str, ...]) -> Iterator[str]:
    """Why another run of a step could be noticed, or would take long.

    Args:
        trace: of its first run.
        effects: that this has left.
    """
    yield from reasons_around()
    yield from effects
    if trace.not_restored:
        yield Message("not all that the step changed could be put back")
    if trace.seconds > MOST_SECONDS:
        yield Message("the step took {seconds} s", seconds=f"{trace.seconds:.0f}")


Inside = Callable[[], contextlib.AbstractContextManager[None]]
"""Makes what a thread of a step enters."""


class OwnThreads:
    """Which threads work for a step; others are never counted, silenced or held up."""

    def __init__(self) -> None:
        self._idents: list[int] = []  # as often as a thread has entered

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """For this time the calling thread is one of them."""
        ident = get_ident()
        self._idents.append(ident)
        try:
            yield
        finally:
            self._idents.remove(ident)

    def are_here(self) -> bool:
        """Whether the calling thread is one of them."""
        return get_ident() in self._idents


Told = Callable[..., str]
"""What a call has done, given its arguments; "" if nothing that stays."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class _Call:
    """One function, and what stands in its place while a step is watched.

    Not a layer of the registry of patches: thirty of those take a tenth of the time of a small trace. What stands in the place
    is made once and only forwards when nobody watches, so that whoever has kept it is not harmed.
    """

    def __init__(self, owner: Any, name: str, told: Told) -> None:
        self._owner, self._name, self._told = owner, name, told
        self._below = getattr(owner, name)
        self._is_inherited = name not in vars(owner)
        self._ours = functools.wraps(self._below)(lambda *args, **kwargs: self._forward_call(args, kwargs))

    def _forward_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for own, seen in list(_watches):
            if own.are_here() and (words := self._told(*args, **kwargs)):
                seen(words)
        return self._below(*args, **kwargs)

    def put_in(self) -> None:
        found = getattr(self._owner, self._name)
        if found is not self._ours:
            self._below, self._is_inherited = found, self._name not in vars(self._owner)
            setattr(self._owner, self._name, self._ours)

    def take_out(self) -> None:
        if vars(self._owner).get(self._name) is not self._ours:
            return  # somebody has put theirs over it
        if self._is_inherited:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._below)


Watching = tuple[OwnThreads, Callable[[str], object]]
_watches: list[Watching] = []
_lock = Lock()


def watch_calls(own: OwnThreads, seen: Callable[[str], object], undo: Undo) -> None:
    """Until that is undone, tell of each call of some threads that reaches beyond the process's own memory.

    Python's audit events would tell of the same, but their hook stays for ever and makes each `id` six times as slow.
    """
    with contextlib.suppress(FileNotFoundError):
        tempfile.gettempdir()  # its first call in a process writes a file, and removes it: not the step's doing
    watching = own, seen
    undo.add_step(_end_watching, watching)
    _begin_watching(watching)


@_lock
def _begin_watching(watching: Watching) -> None:
    _watches.append(watching)
    for call in _CALLS:
        call.put_in()


@_lock
def _end_watching(watching: Watching) -> None:
    _watches[:] = [each for each in _watches if each is not watching]
    for call in _CALLS if not _watches else ():
        call.take_out()


def _describe_open(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> str:
    return _describe_write(file) if is_a(mode, str) and set(mode) & set("wax+") else ""


def _describe_open_by_flags(file: Any, flags: Any, *args: Any, **kwargs: Any) -> str:
    return _describe_write(file) if is_a(flags, int) and flags & _WRITES else ""


def _describe_save(obj: Any, f: Any = None, *args: Any, **kwargs: Any) -> str:
    return _describe_write(f)


def _describe_write(file: Any) -> str:
    if path := _path_of(file):
        return "" if path == os.devnull or _is_compiled(path) else Message("the step wrote to `{file}`", file=path)
    return Message("the step wrote to an open file")


def _describe_call(name: str) -> Told:
    return lambda *args, **kwargs: Message("the step called `{name}`", name=name)


def _path_of(file: Any) -> str:
    return os.fsdecode(file) if issubclass(type(file), (str, bytes, os.PathLike)) else ""


def _is_compiled(path: str) -> bool:
    """Whether a file is what a first import keeps: Python does so unseen, pytest by calls that are watched."""
    return "__pycache__" in (os.path.basename(path), os.path.basename(os.path.dirname(path)))


_NAMES: tuple[tuple[Any, str, Told], ...] = (
    (builtins, "open", _describe_open),
    (io, "open", _describe_open),
    (os, "open", _describe_open_by_flags),
    (torch, "save", _describe_save),
    (subprocess.Popen, "__init__", _describe_call("subprocess.Popen")),
    *((socket.socket, name, _describe_call(f"socket.{name}")) for name in ("connect", "send", "sendall", "sendto")),
)
_CALLS = list(itertools.starmap(_Call, _NAMES))


class TrialWatch:
    """Around a step and its being put back; `begin_step` comes between.

    Attributes:
        own: threads that work for the step; each of them is to enter it.
        effects: sentences on what the step has done outside of the process's memory, each once; complete after the block.
    """

    def __init__(self) -> None:
        self.own, self.effects = OwnThreads(), tuple[str, ...]()
        self._seen: dict[str, None] = {}
        self._undo = Undo()

    def begin_step(self) -> None:
        """The step begins."""
        watch_calls(self.own, self._note_effect, self._undo)

    def _note_effect(self, words: str) -> None:
        self._seen.setdefault(words)

    def __enter__(self) -> TrialWatch:
        switch, state = torch_internals.set_function_state, torch_internals.function_state
        if switch is not None and state is not None:  # our looking is hidden from function modes: it may be cut short
            self._undo.add_step(switch, state())
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._undo:
            self.effects = tuple(self._seen)
