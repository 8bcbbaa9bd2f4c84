"""The relay of a node: whom it answers on the network, whom not, and that there is none unless one is asked for."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch.distributed as dist

import devwidget
from devwidget.distributed.job import make_private
from devwidget.distributed.nodes import relay as relays
from devwidget.distributed.nodes.ask import ask_other_nodes, read_heard, write_heard
from devwidget.distributed.nodes.key import KEY_VARIABLE, make_key, read_key, sign
from devwidget.distributed.nodes.line import NodeLine
from devwidget.distributed.nodes.relay import NODES_FILE, Node, Relay, read_nodes
from devwidget.records.errors import DevwidgetError
from devwidget.records.loading.alike_files import AlikeFiles
from devwidget.records.ranks.merging import Heard
from tests.distributed.jobs import wait_for
from tests.distributed.test_agent import as_another_user
from tests.records.ranks.made_up import reports

REPORTS = reports((("dp", 2),), layers=2)
HEARD = [
    Heard(0, "answered", dataclasses.replace(REPORTS[0], note="of the node that is far")),
    Heard(1, "unknown", announced=REPORTS[1], listens=False),
]
RANK = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}


@pytest.fixture
def far(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[pathlib.Path, Node]]:
    """The relay of two ranks, and the folder of another node that has heard where it is."""
    for name, value in (RANK | {KEY_VARIABLE: str(tmp_path / "key")}).items():
        monkeypatch.setenv(name, value)
    there, here = (make_private(tmp_path / name, for_sockets=False) for name in ("there", "here"))
    relay = Relay(there, make_key(), dist.HashStore(), lambda: write_heard(HEARD))
    relay.begin()
    try:
        (own,) = wait_for(lambda: read_nodes(there), pause=0.01)
        node = own._replace(host="far", machine="another")
        (here / NODES_FILE).write_text(json.dumps([node]), encoding="utf-8")
        yield here, node
    finally:
        relay.end()


def test_who_has_the_key_hears_all_ranks_of_the_other_node(far: tuple[pathlib.Path, Node]):
    assert ask_other_nodes(far[0]) == HEARD
    assert ask_other_nodes(far[0]) == HEARD


def test_who_has_another_key_hears_nothing_and_says_so_of_those_ranks(
    far: tuple[pathlib.Path, Node], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(KEY_VARIABLE, str(tmp_path / "another"))
    make_key()
    heard = ask_other_nodes(far[0])
    assert [(each.rank, each.state, each.report, each.announced) for each in heard] == [
        (n, "unknown", None, None) for n in (0, 1)
    ]
    assert heard[0].note.startswith("far has another key")


def test_who_has_no_key_asks_nobody(far: tuple[pathlib.Path, Node], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(KEY_VARIABLE, str(tmp_path / "none"))
    heard = ask_other_nodes(far[0])
    assert {(each.state, each.note) for each in heard} == {
        ("unknown", f"the key {tmp_path / 'none'} cannot be read: No such file or directory")
    }


@pytest.mark.parametrize(
    "said",
    [b"", b"\x00" * 500, b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 8, b"\x00" * 7 + b"\x10" + b"x" * 16, b"\x00" * 7 + b"\x00"],
)
def test_a_stranger_gets_a_random_number_and_no_more(far: tuple[pathlib.Path, Node], said: bytes):
    heard = b""
    with socket.create_connection((far[1].address, far[1].port), 5.0) as line, contextlib.suppress(ConnectionError):
        line.sendall(said)
        while part := line.recv(4096):
            heard += part
    assert b"far" not in heard
    assert len(heard) < 64
    assert ask_other_nodes(far[0]) == HEARD  # and it goes on


def test_an_answer_of_who_has_another_key_is_not_read(
    far: tuple[pathlib.Path, Node], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    """A stranger that listens where a relay was: what it says counts for nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = Node("far", "another", *listener.getsockname(), 0, 2)
        (far[0] / NODES_FILE).write_text(json.dumps([place]), encoding="utf-8")
        child = os.fork()
        if child == 0:
            with contextlib.suppress(Exception), NodeLine(listener.accept()[0], 3.0) as line:
                line.check_caller(b"x" * 64)
            os._exit(0)
        heard = ask_other_nodes(far[0])
        os.waitpid(child, 0)
    assert [each.state for each in heard] == ["unknown", "unknown"]


def test_who_passes_on_what_a_relay_asks_gets_no_answer_that_counts_there(far: tuple[pathlib.Path, Node]):
    """A stranger that listens where a relay was, between who has the key and the relay that there is now."""
    here, node = far
    with socket.create_server(("127.0.0.1", 0)) as listener:
        (here / NODES_FILE).write_text(json.dumps([node._replace(port=listener.getsockname()[1])]), encoding="utf-8")
        passed: list[bytes] = []
        stranger = threading.Thread(target=pass_on, args=(listener, node, passed))
        stranger.start()
        assert [each.state for each in ask_other_nodes(here)] == ["unknown", "unknown"]
        stranger.join()
    _number, _answer, refused, *rest = passed
    assert (b"FAILURE" in refused, b"".join(rest)) == (True, b"")
    (here / NODES_FILE).write_text(json.dumps([node]), encoding="utf-8")
    assert ask_other_nodes(here) == HEARD


def pass_on(listener: socket.socket, node: Node, passed: list[bytes]) -> None:
    """Pass on what one end says to the other, in the order in which they speak."""
    caller, _ = listener.accept()
    with caller, socket.create_connection((node.address, node.port), 5.0) as relay, contextlib.suppress(OSError):
        for source, target in ((relay, caller), (caller, relay), (relay, caller), (caller, relay), (relay, caller)):
            source.settimeout(3.0)
            said = source.recv(4096)
            passed.append(said)
            if not said:
                return
            target.sendall(said)


def test_an_address_that_nobody_with_the_key_has_signed_is_left_alone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    """The store of a job is open to all on the network: who could put an address there would be shown what others answer."""
    for name, value in (RANK | {KEY_VARIABLE: str(tmp_path / "key"), "WORLD_SIZE": "4"}).items():
        monkeypatch.setenv(name, value)
    store, key = dist.HashStore(), make_key()
    texts = [json.dumps([run, "evil", machine, "10.0.0.9", 9, 2, 2]) for run, machine in (("", "a"), ("", "b"), ("old", "c"))]
    signatures = [sign(b"y" * 64, texts[0]), sign(key, texts[1]), sign(key, texts[2])]
    for text, signature in zip(texts, signatures, strict=True):
        store.set(f"devwidget/relay/{store.add('devwidget/relays', 1)}", json.dumps([text, signature]))
    store.set(f"devwidget/relay/{store.add('devwidget/relays', 1)}", "no JSON")
    folder = make_private(tmp_path / "here", for_sockets=False)
    relay = Relay(folder, key, store, lambda: "[]")
    relay.begin()
    try:
        wait_for(lambda: len(read_nodes(folder)) == 2, pause=0.01)
    finally:
        relay.end()
    assert [node.machine for node in read_nodes(folder) if node.host == "evil"] == ["b"]  # signed, and of this run


def listening() -> set[str]:
    """The TCP ports on which this process listens."""
    own = {os.readlink(path) for path in pathlib.Path("/proc/self/fd").iterdir() if path.exists() or path.is_symlink()}
    rows = [row.split() for name in ("tcp", "tcp6") for row in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own}


@pytest.fixture
def one_rank(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., contextlib.AbstractContextManager]]:
    monkeypatch.setenv(KEY_VARIABLE, str(tmp_path / "key"))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # that torch replaces
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    folder = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"ranks-{os.getpid()}-{time.monotonic_ns()}"
    yield lambda **how: devwidget.serve(folder=folder, **how)
    dist.destroy_process_group()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def test_no_port_is_open_unless_it_is_asked_for_and_none_afterwards(one_rank: Callable[..., contextlib.AbstractContextManager]):
    before = listening()
    with one_rank():
        assert listening() == before
    with one_rank(nodes=True):
        (opened,) = wait_for(lambda: listening() - before, pause=0.01)
        assert opened.startswith("0100007F:")  # the address of the job, which is this machine's own; not all addresses
    assert listening() == before


def test_a_node_that_nobody_could_find_is_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in RANK.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(DevwidgetError, match=r"cannot find each other: `torch\.distributed` is not initialised"):
        devwidget.serve(folder=tmp_path / "job", nodes=True)


def test_the_key_is_this_user_s_alone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "above" / "key"
    monkeypatch.setenv(KEY_VARIABLE, str(path))
    key = make_key()
    assert (make_key(), stat.S_IMODE(path.stat().st_mode), len(key)) == (key, 0o600, 64)
    path.chmod(0o640)
    with pytest.raises(DevwidgetError, match="is not this user's alone"):
        read_key()
    path.chmod(0o600)
    path.write_text("short", encoding="ascii")
    with pytest.raises(DevwidgetError, match="less than 32 characters"):
        make_key()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_cannot_read_the_key(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(KEY_VARIABLE, str(tmp_path / "key"))
    make_key()
    for folder in (tmp_path, *tmp_path.parents[:3]):  # what is above is not what keeps others out
        folder.chmod(folder.stat().st_mode | 0o055)
    assert as_another_user(str(tmp_path / "key")) == 13  # EACCES


@pytest.mark.parametrize("text", ["7", "[[]]", '[["", "", ""]]', "[7]", '[["x", "", ""]]'])
def test_what_is_no_answer_is_refused(text: str):
    with pytest.raises((ValueError, TypeError)):
        assert list(read_heard(text, AlikeFiles()))


def test_a_first_node_that_knows_itself_as_a_loopback_address_is_found_by_the_others(monkeypatch):
    """Debian writes the name of the machine beside 127.0.1.1."""
    family = socket.AF_INET
    for asks in ("gethostname", "getfqdn"):
        monkeypatch.setattr(socket, asks, lambda asks=asks: {"gethostname": "node-1", "getfqdn": "localhost"}[asks])
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(family, None, 0, "", ("127.0.1.1", 9))])
    sources = {("127.0.1.1", 9): "127.0.0.1", ("192.0.2.1", 9): "10.0.0.7"}
    monkeypatch.setattr(relays, "_find_source", lambda _, place: sources[place])
    assert relays.find_address({"MASTER_ADDR": "node-1"}) == ("10.0.0.7", family)
    assert relays.find_address({"MASTER_ADDR": "localhost"}) == ("127.0.0.1", family)
