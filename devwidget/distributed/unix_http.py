"""One question over a unix socket, within a time and a size."""

from __future__ import annotations

import http.client
import os
import pathlib
import socket
import struct
import time
from typing import Any, NamedTuple

from devwidget.records.schema.message import Message

LARGEST_ANSWER = 2**26
"""Bytes; a model of 100,000 modules takes 2**24."""
_CHUNK = 2**16


class NoAnswer(Exception):
    """Nothing came, or nothing that can be used.

    Attributes:
        why: a phrase.
    """

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(why)


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes


class Line:
    """A connection to one rank, made at once; what it is asked later runs against the same clock.

    Attributes:
        pid: of the process that listens, 0 where the machine does not say.

    Raises:
        ConnectionRefusedError: if nobody listens at the socket.
        FileNotFoundError: if there is none.
    """

    def __init__(self, path: pathlib.Path, seconds: float) -> None:
        self._socket = _connected(path, seconds)
        self.pid = _listener(self._socket)

    def ask(self, handler: str, body: bytes = b"") -> Answer:
        """What a handler says.

        Raises:
            NoAnswer: if it takes too long, or is too long.
        """
        connection = _Connection(self._socket)
        try:
            self._socket.hurry()
            connection.request("POST", f"/handler/{handler}", body)
            response = connection.getresponse()
            return Answer(response.status, b"".join(iter(lambda: response.read(_CHUNK), b"")))
        except TimeoutError:
            raise NoAnswer(Message("it gave no answer in time")) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise NoAnswer(Message("what it sent is no answer ({error})", error=type(error).__name__)) from None
        finally:
            self._socket.close()


class _Bounded(socket.socket):
    """A socket that gives so much and no more, within a time: status lines and headers too, however many there are.

    Args:
        seconds: for all that is asked of it together.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(socket.AF_UNIX)
        self._until, self._left = time.monotonic() + seconds, LARGEST_ANSWER
        self.settimeout(seconds)

    def hurry(self) -> None:
        """Have the next wait be bounded by what is left of the time."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.settimeout(left)

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        """What `http.client` reads by."""
        self.hurry()
        count = super().recv_into(*args, **kwargs)
        self._left -= count
        if self._left < 0:
            raise NoAnswer(Message("its answer is longer than {size} bytes", size=f"{LARGEST_ANSWER:,}"))
        return count


class _Connection(http.client.HTTPConnection):
    """HTTP over a socket that is connected already."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__("localhost")
        self._connected = connected

    def connect(self) -> None:
        self.sock = self._connected


def _connected(path: pathlib.Path, seconds: float) -> _Bounded:
    made = _Bounded(seconds)
    try:
        made.connect(os.fspath(path))
    except BaseException:
        made.close()
        raise
    return made


def _listener(connected: socket.socket) -> int:
    """The process that listens, as the kernel of Linux knows it; also when a forked child of it still holds the socket."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return 0
    pid, _, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return max(0, int(pid))
