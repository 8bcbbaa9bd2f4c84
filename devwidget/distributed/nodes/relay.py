"""The relay of a node: one of its ranks answers for all of them to the other nodes, if `serve(nodes=True)` asks for that."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import math
import os
import pathlib
import select
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from devwidget.distributed.job import agree_on_run, find_identity, find_machine, write_whole
from devwidget.distributed.nodes.key import is_signed, key_of_line, sign
from devwidget.distributed.nodes.line import REFUSED, NodeLine
from devwidget.records.errors import DevwidgetError, error_text

NODES_FILE = "nodes.json"
"""In the folder of a node: where the relays of the others listen, as far as its own has heard."""
_LOCK_FILE = "relay.lock"
_COUNT, _EACH = "devwidget/relays", "devwidget/relay/{number}"
_MOST_NODES = 2**14
_MOST_ENTRY = 2**12
_ANSWER_S, _GREETING_S = 8.0, 2.0
_LOOK_S, _LOOK_LATER_S, _SOON = 1.0, 10.0, 120.0
"""Seconds between two looks for others, between two later on, and after which it is later."""


class Node(NamedTuple):
    """Where the relay of a node listens.

    Attributes:
        host: name of its machine.
        machine: what tells it from another of that name.
        address: of the network.
        port: there.
        first: the lowest of its ranks, -1 where its launcher does not say.
        size: how many ranks it has, 0 where its launcher does not say.
    """

    host: str
    machine: str
    address: str
    port: int
    first: int
    size: int


class Relay:
    """Waits until it is the one of its node, then listens, says where in the job's store, and looks for the others there.

    The store is open to everybody on the network: what stands in it is signed, and an address that is not is left alone. Its
    life is one thread, which ends with `end`; when its process dies, the lock is free and another rank of the node follows.

    Args:
        folder: of the ranks of this node.
        key: of all nodes.
        store: of the job.
        answer: what the ranks of this folder say, as a text.

    Attributes:
        fault: why the other nodes may not hear of this one; "" if nothing went wrong.
    """

    def __init__(self, folder: pathlib.Path, key: bytes, store: Any, answer: Callable[[], str]) -> None:
        self._folder, self._key, self._store, self._answer = folder, key, store, answer
        self._known: dict[int, Node] = {}
        self._wake, self._over = os.pipe()
        self._thread = threading.Thread(target=self._live, name="devwidget relay", daemon=True)
        self.fault = ""

    def begin(self) -> None:
        """Begin the thread."""
        self._thread.start()

    def end(self) -> None:
        """Listen no more. It is waited for: a thread that wants Python when that is over would abort the process."""
        # To close it would not do: a forked child may hold the other end too.
        os.write(self._over, b"x")
        self._thread.join(2 * _ANSWER_S)
        os.close(self._over)
        os.close(self._wake)

    def _live(self) -> None:
        try:
            with _locked(self._folder / _LOCK_FILE, self._is_over) as is_ours, contextlib.ExitStack() as listening:
                if is_ours:
                    listener = listening.enter_context(self._listen())
                    _listening.append(listener)
                    listening.callback(_listening.remove, listener)
                    self._serve(listener)
        except Exception as error:
            # No address, or no room in the folder: nobody hears of this node, and the job goes on.
            self.fault = error_text(error)

    def _is_over(self, seconds: float) -> bool:
        return bool(select.select([self._wake], [], [], seconds)[0])

    def _listen(self) -> socket.socket:
        """Listen where the relay before this one did, so that the others find it, or anywhere."""
        address, family = find_address()
        before = next((node.port for node in read_nodes(self._folder) if _is_own(node, address)), 0)
        try:
            return socket.create_server((address, before), family=family, backlog=16)
        except OSError:
            return socket.create_server((address, 0), family=family, backlog=16)

    def _serve(self, listener: socket.socket) -> None:
        who, (address, port, *_) = find_identity(), listener.getsockname()
        given = os.environ.get("LOCAL_WORLD_SIZE", "")
        count = int(given) if given.isdigit() else 0
        first = who.rank - who.local_rank if who.local_rank >= 0 and count else -1
        own = Node(who.host, find_machine(), address, port, first, count)
        began, published = time.monotonic(), False
        while True:
            try:
                if not published:
                    self._publish(own)
                published, whole = True, self._look_for_others(who.world_size)
            except RuntimeError as error:
                # The store has gone with its rank: the others may ask still, where they know of this node.
                self.fault, whole = error_text(error), True
            pause = None if whole else _LOOK_S if time.monotonic() - began < _SOON else _LOOK_LATER_S
            if self._meet_callers(listener, pause):
                return

    def _meet_callers(self, listener: socket.socket, pause: float | None) -> bool:
        """Answer who calls, for so many seconds, or until all is over; whether it is."""
        until = math.inf if pause is None else time.monotonic() + pause
        watched: list[Any] = [listener, self._wake]
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select(watched, [], [], None if left == math.inf else left)
            if self._wake in ready:
                return True
            if ready:
                self._meet(listener)
        return False

    def _publish(self, own: Node) -> None:
        text = json.dumps([agree_on_run(), *own])
        number = self._store.add(_COUNT, 1)
        self._store.set(_EACH.format(number=number), json.dumps([text, sign(self._key, text)]))

    def _look_for_others(self, world_size: int) -> bool:
        """Write down what is new; whether all ranks of the job are known to be on these nodes."""
        before = len(self._known)
        for number in range(1, min(self._store.add(_COUNT, 0), _MOST_NODES) + 1):
            if number not in self._known and self._store.check([_EACH.format(number=number)]):
                found = _read_entry(self._store.get(_EACH.format(number=number)), self._key)
                if found is not None:
                    self._known[number] = found
        # Of two of one machine the later: the rank that was its relay has ended.
        nodes = {self._known[number].machine: self._known[number] for number in sorted(self._known)}
        if len(self._known) > before:
            write_whole(self._folder / NODES_FILE, json.dumps(list(nodes.values())))
        return sum(node.size for node in nodes.values()) >= world_size

    def _meet(self, listener: socket.socket) -> None:
        """Answer one caller, who has a moment to show the key; whoever has none hears a random number and nothing else."""
        connected, _ = listener.accept()
        # A folder that is gone is no reason to be deaf either: it may be there again for the next.
        with contextlib.suppress(OSError, DevwidgetError, *REFUSED), NodeLine(connected, _GREETING_S) as greeting:
            greeting.check_caller(key_of_line(self._key, *listener.getsockname()[:2]))
            answer = zlib.compress(self._answer().encode(), 1)
            NodeLine(connected, _ANSWER_S).send_bytes(answer)


_listening: list[socket.socket] = []


def _close_in_child() -> None:
    """A forked child, such as a worker of a loader, that outlives its rank would hold the port, and answer nobody."""
    for each in _listening:
        each.close()


os.register_at_fork(after_in_child=_close_in_child)


def _is_own(node: Node, address: str) -> bool:
    return node.machine == find_machine() and node.address == address


def _read_entry(entry: bytes, key: bytes) -> Node | None:
    """Read what one relay has written; None if it was not one with the key, or one of another run."""
    if len(entry) > _MOST_ENTRY:
        return None
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        text, signature = json.loads(entry)
        if is_signed(key, text, signature):
            run, *facts = json.loads(text)
            return Node(*facts) if run == agree_on_run() else None
    return None


def read_nodes(folder: pathlib.Path) -> list[Node]:
    """Read where the relays listen that the relay of a folder has heard of; none where it has heard of none."""
    try:
        return [Node(*facts) for facts in json.loads((folder / NODES_FILE).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def find_address(environ: Mapping[str, str] = os.environ) -> tuple[str, socket.AddressFamily]:
    """Find the one address from which this node reaches the first of the job; nothing is sent to find it.

    The first itself may know its own name as an address that only it can reach, as Debian writes it down: then the one from
    which it would reach any other network.
    """
    first = environ.get("MASTER_ADDR") or socket.gethostname()
    family, _, _, _, place = socket.getaddrinfo(first, 9, type=socket.SOCK_DGRAM)[0]
    address = _find_source(family, place)
    is_name = first in (socket.gethostname(), socket.getfqdn()) and not first.startswith("localhost")
    if is_name and ipaddress.ip_address(address).is_loopback:
        with contextlib.suppress(OSError):  # no way leads out
            address = _find_source(family, (_FAR[family], 9))
    return address, family


_FAR = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses that are nobody's. Source: RFC 5737, RFC 3849."""


def _find_source(family: socket.AddressFamily, place: Any) -> str:
    with socket.socket(family, socket.SOCK_DGRAM) as tried:
        tried.connect(place)
        return str(tried.getsockname()[0])


@contextlib.contextmanager
def _locked(path: pathlib.Path, is_over: Callable[[float], bool]) -> Iterator[bool]:
    """Wait for a lock that ends with its process; not for a forked child of it, as `flock` would.

    Yields:
        Whether it is ours; False if all is over before.
    """
    with open(path, "w", opener=_open_private, encoding="ascii") as file:
        while True:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if is_over(_LOOK_S):
                    yield False
                    return
            else:
                yield True
                return


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
