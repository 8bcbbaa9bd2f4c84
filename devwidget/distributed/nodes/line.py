"""A line between two nodes: both ends show that they have the key before anything else is said, within a time and a size."""

from __future__ import annotations

import socket
import struct
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Self, cast

from devwidget.distributed.unix_http import LARGEST_ANSWER

_HEAD = struct.Struct("!Q")
REFUSED = (AuthenticationError, AssertionError, ValueError)
"""What Python's library raises where the other end does not have the key, or speaks of something else."""


class NodeLine:
    """A connected socket on which messages of bytes go both ways; nothing is unpickled.

    Python's own challenges are spoken on it: each end sends a random number, and the other its HMAC by the key, so that the
    key itself never travels. What is said afterwards is not encrypted.

    Args:
        connected: is closed at the end.
        seconds: for all that is said together.
    """

    def __init__(self, connected: socket.socket, seconds: float) -> None:
        self._socket, self._until = connected, time.monotonic() + seconds

    def check_caller(self, key: bytes) -> None:
        """See that who has called has the key, then show it ours; raises one of REFUSED, or OSError."""
        deliver_challenge(cast(Connection, self), key)
        answer_challenge(cast(Connection, self), key)

    def check_called(self, key: bytes) -> None:
        """The same of the one that was called, from the other end."""
        answer_challenge(cast(Connection, self), key)
        deliver_challenge(cast(Connection, self), key)

    def send_bytes(self, message: bytes) -> None:
        """Send one message."""
        self._bound_next_wait()
        self._socket.sendall(_HEAD.pack(len(message)) + message)

    def recv_bytes(self, maxlength: int = LARGEST_ANSWER) -> bytes:
        """Receive one message of so many bytes at most; raise OSError if it is longer, or the line ends."""
        (length,) = _HEAD.unpack(self._receive(_HEAD.size))
        if length > maxlength:
            raise OSError("the message is too long")
        return self._receive(length)

    def _receive(self, length: int) -> bytes:
        parts: list[bytes] = []
        while length:
            self._bound_next_wait()
            part = self._socket.recv(min(length, 2**16))
            if not part:
                raise ConnectionResetError("the line has ended")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def _bound_next_wait(self) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("it takes too long")
        self._socket.settimeout(left)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
