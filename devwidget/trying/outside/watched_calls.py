"""Watched calls: what a step does to files, processes, the network and queues, seen while it is recorded."""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import itertools
import os
import queue
import socket
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.interrupts import Lock
from devwidget.capture.object_fields import is_a
from devwidget.capture.undo import Undo
from devwidget.records.schema.message import Message
from devwidget.trying.outside.own_threads import OwnThreads

Told = Callable[..., str]
"""What a call has done, given its arguments; "" if nothing that stays."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_OF_FILES = (
    "write",
    "remove",
    "unlink",
    "rename",
    "replace",
    "mkdir",
    "rmdir",
    "symlink",
    "link",
    "truncate",
    "chmod",
    "chdir",
)
_OF_PROCESSES = ("system", "fork", "posix_spawn", "kill", "putenv", "unsetenv")


class _Call:
    """One function, and what stands in its place while a step is watched.

    Not a layer of the registry of patches: thirty of those take a tenth of the time of a small trace. What stands in the place
    is made once and only forwards when nobody watches, so that whoever has kept it is not harmed.
    """

    def __init__(self, owner: Any, name: str, told: Told) -> None:
        self._owner, self._name, self._told = owner, name, told
        self._below = getattr(owner, name)
        self._is_inherited = name not in vars(owner)
        self._ours = functools.wraps(self._below)(lambda *args, **kwargs: self._call(args, kwargs))

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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
    undo.add_step(_end, watching)
    _begin(watching)


@_lock
def _begin(watching: Watching) -> None:
    _watches.append(watching)
    for call in _CALLS:
        call.put_in()


@_lock
def _end(watching: Watching) -> None:
    _watches[:] = [each for each in _watches if each is not watching]
    for call in _CALLS if not _watches else ():
        call.take_out()


def _opened(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> str:
    return _written(file) if is_a(mode, str) and set(mode) & set("wax+") else ""


def _opened_by_flags(file: Any, flags: Any, *args: Any, **kwargs: Any) -> str:
    return _written(file) if is_a(flags, int) and flags & _WRITES else ""


def _saved(obj: Any, f: Any = None, *args: Any, **kwargs: Any) -> str:
    return _written(f)


def _written(file: Any) -> str:
    if issubclass(type(file), (str, bytes, os.PathLike)):
        path = os.fsdecode(file)
        return "" if path == os.devnull else Message("the step wrote to `{file}`", file=path)
    return Message("the step wrote to an open file")


def _called(name: str) -> Told:
    return lambda *args, **kwargs: Message("the step called `{name}`", name=name)


_NAMES: tuple[tuple[Any, str, Told], ...] = (
    (builtins, "open", _opened),
    (io, "open", _opened),
    (os, "open", _opened_by_flags),
    (torch, "save", _saved),
    *((os, name, _called(f"os.{name}")) for name in (*_OF_FILES, *_OF_PROCESSES) if hasattr(os, name)),
    (subprocess.Popen, "__init__", _called("subprocess.Popen")),
    *((socket.socket, name, _called(f"socket.{name}")) for name in ("connect", "send", "sendall", "sendto")),
    (queue.Queue, "put", _called("Queue.put")),
)
_CALLS = list(itertools.starmap(_Call, _NAMES))
