"""One query over a unix socket with a limit on time and size; and the end of all queries to this process."""

from __future__ import annotations

import contextlib
import http.client
import os
import pathlib
import select
import socket
import stat
import struct
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from devwidget.records.schema.message import Message

# Bytes; a model of 100,000 modules takes 2**24.
LARGEST_ANSWER = 2**26
_CHUNK = 2**16
_LONGEST_ANSWER_S = 5.0


class NoAnswer(Exception):
    """There is no answer, or an invalid one; its only argument says why."""


class Answer(NamedTuple):
    """An answer."""

    status: int
    body: bytes


class Line:
    """A connection to one rank. All its queries share one time limit.

    Attributes:
        pid: Number of the process that listens, 0 if unknown.

    Raises:
        ConnectionRefusedError: If the socket refuses connections.
        FileNotFoundError: If there is no socket.
    """

    def __init__(self, path: pathlib.Path, seconds: float) -> None:
        self._socket = _Bounded(seconds)
        try:
            self._socket.connect(os.fspath(path))
        except BaseException:
            self._socket.close()
            raise
        self.pid = _find_listener(self._socket)

    def ask(self, handler: str, body: bytes = b"") -> Answer:
        """Return the answer of a handler; raise NoAnswer if it takes too long or is too large."""
        connection = http.client.HTTPConnection("localhost")
        connection.sock = self._socket
        try:
            self._socket.bound_next_wait()
            connection.request("POST", f"/handler/{handler}", body)
            response = connection.getresponse()
            return Answer(response.status, b"".join(iter(lambda: response.read(_CHUNK), b"")))
        except TimeoutError:
            raise NoAnswer(Message("it gave no answer in time")) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise NoAnswer(Message("it sent an invalid answer ({error})", error=type(error).__name__)) from None
        finally:
            self._socket.close()


class _Bounded(socket.socket):
    """A socket with limits on time and size of all its queries together, including status lines and headers."""

    def __init__(self, seconds: float) -> None:
        super().__init__(socket.AF_UNIX)
        self._until, self._left = time.monotonic() + seconds, LARGEST_ANSWER
        self.settimeout(seconds)

    def bound_next_wait(self) -> None:
        """Limit the next wait to the time that is left."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.settimeout(left)

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        """Receive for `http.client`, within the limits."""
        self.bound_next_wait()
        count = super().recv_into(*args, **kwargs)
        self._left -= count
        if self._left < 0:
            raise NoAnswer(Message("its answer is larger than {size} bytes", size=f"{LARGEST_ANSWER:,}"))
        return count


def _find_listener(connected: socket.socket) -> int:
    """Return the process that listens, even if a forked child still has the socket."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return 0
    pid, _, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return max(0, int(pid))


def end_connections(path: pathlib.Path) -> None:
    """Stop reading queries and wait until all are answered; new connections are refused.

    The server is C++. Python ends a C++ thread that needs the GIL after Python has ended, which aborts the process: a rank
    that is queried at that moment would fail.
    """
    until = time.monotonic() + _LONGEST_ANSWER_S
    # Twice: a connection that is accepted after the open files were listed waits in no queue any more, and is in no list yet.
    while (_is_any_open(path) or _is_any_open(path)) and time.monotonic() < until:
        # Sleeping lets the threads of the server have Python, which they need to answer.
        time.sleep(0.001)


def _is_any_open(path: pathlib.Path) -> bool:
    found = False
    for each in _bound_sockets(path):
        if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            backlog = select.poll()
            backlog.register(each, select.POLLIN)
            found = found or bool(backlog.poll(0))
        else:
            found = True
            # The other side may have gone meanwhile.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RD)
    return found


def _bound_sockets(path: pathlib.Path) -> Iterator[socket.socket]:
    """Yield the sockets of this process bound to a path: the server's, and its side of connections."""
    for name in os.listdir("/dev/fd"):
        # Another thread may have closed it since it was listed.
        with contextlib.suppress(OSError):
            number = int(name)
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as found:
                    if found.family == socket.AF_UNIX and found.getsockname() == str(path):
                        yield found
