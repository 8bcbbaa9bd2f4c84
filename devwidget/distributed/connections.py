"""Ends the connections to a socket of this process, whose server belongs to C++.

A thread of C++ that wants Python when Python is over is ended by it, which aborts the process: a rank that is asked in the
moment of its end would fail. So whoever is connected is answered before.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import socket
import stat
import time
from collections.abc import Iterator

LONGEST = 5.0
"""Seconds that are waited for answers that are being written."""


def end_connections(path: pathlib.Path) -> None:
    """Read no more of any question that is on its way, and wait until all are answered; nobody can connect any more."""
    until = time.monotonic() + LONGEST
    while _is_any_open(path) and time.monotonic() < until:
        time.sleep(0.001)  # lets threads have Python


def _is_any_open(path: pathlib.Path) -> bool:
    found = False
    for each in _sockets(path):
        if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            backlog = select.poll()
            backlog.register(each, select.POLLIN)
            found = found or bool(backlog.poll(0))
        else:
            found = True
            with contextlib.suppress(OSError):  # they have gone
                each.shutdown(socket.SHUT_RD)
    return found


def _sockets(path: pathlib.Path) -> Iterator[socket.socket]:
    """The sockets of this process that are bound to a path: the server's, and its side of each connection."""
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # closed since they were listed
            number = int(name)
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as found:
                    if found.family == socket.AF_UNIX and found.getsockname() == str(path):
                        yield found
