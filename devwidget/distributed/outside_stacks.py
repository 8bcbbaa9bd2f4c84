"""Where ranks are that give no answer, as py-spy reads it out of their memory, if it is there; they run on meanwhile."""

from __future__ import annotations

import contextlib
import json
import linecache
import pathlib
import shutil
import subprocess
from collections.abc import Iterable
from typing import Any

from devwidget.capture.source_code.call_sites import is_library, is_own
from devwidget.distributed.job import socket_of
from devwidget.distributed.unix_http import Line
from devwidget.records.ranks.cluster import Cluster
from devwidget.records.site import Site

MOST_ASKED = 4
"""Ranks of which the stack is read; the others mostly are at the same line."""
_SECONDS = 5.0
_SILENT = frozenset({"busy", "stopped"})


def read_outside_stacks(cluster: Cluster, folders: Iterable[pathlib.Path]) -> dict[int, tuple[Site, ...]]:
    """Read the stacks of ranks that are busy or stopped and run on this machine; nothing without py-spy."""
    program, silent = shutil.which("py-spy"), [rank.number for rank in cluster.ranks if rank.state in _SILENT]
    if program is None:
        return {}
    pids = {number: pid for folder in folders for number in silent[:MOST_ASKED] if (pid := _find_process(folder, number))}
    found = {number: _read_stack(program, pid) for number, pid in pids.items()}
    return {number: stack for number, stack in found.items() if stack}


def _find_process(folder: pathlib.Path, rank: int) -> int:
    """Find who listens at the socket of a rank, as the kernel of this machine knows; 0 if nobody here does."""
    with contextlib.suppress(OSError):
        line = Line(socket_of(folder, rank), _SECONDS)
        line.close()
        return line.pid
    return 0


def _read_stack(program: str, pid: int) -> tuple[Site, ...]:
    # It would stop the process for a moment otherwise, and a debugger that dies would leave it stopped.
    command = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        told = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=True).stdout
        return _find_sites(next(each["frames"] for each in json.loads(told) if each["os_thread_id"] == pid))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError, StopIteration):
        # It may not read that process, or the process ran on and what was read makes no sense.
        return ()


def _find_sites(frames: list[dict[str, Any]]) -> tuple[Site, ...]:
    """The user's lines, and the innermost of all, which comes first in what py-spy tells."""
    places = [(str(frame["filename"]), int(frame["line"]), str(frame["name"]).rpartition(".")[2]) for frame in frames]
    kept = [
        place
        for at, place in enumerate(places)
        if not is_own(place[0]) and not place[0].startswith("<frozen") and (at == 0 or not is_library(place[0]))
    ]
    return tuple(Site(file, line, linecache.getline(file, line).strip(), name) for file, line, name in reversed(kept))
