"""Who asks: whatever comes from a socket, or does not come, is a state of that rank and nothing worse."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import devwidget
from devwidget.extras.ranks import ask_ranks
from devwidget.extras.ranks.ask_ranks import ask_folder, ask_rank, read_process_state
from devwidget.extras.ranks.job import file_of, find_machine, socket_of
from devwidget.extras.ranks.records.cluster import Rank
from devwidget.extras.ranks.records.rank import Collective, LastWord, RankReport
from devwidget.records.errors import DevwidgetError
from devwidget.records.loading.json_io import dumps
from tests.extras.ranks.records.made_up import model, report

pytestmark = pytest.mark.process
Serve = Callable[[socket.socket], None]


@contextlib.contextmanager
def listening(path: pathlib.Path, serve: Serve) -> Iterator[None]:
    """A server that does as it is told with each connection."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(0.05)
        done = threading.Event()
        thread = threading.Thread(target=_serve, args=(server, serve, done))
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _serve(server: socket.socket, serve: Serve, done: threading.Event) -> None:
    open_ones = []
    while not done.is_set():
        with contextlib.suppress(TimeoutError):
            connected, _ = server.accept()
            open_ones.append(connected)
            with contextlib.suppress(OSError):
                serve(connected)
    for each in open_ones:
        each.close()


def answer(body: bytes, status: str = "200 OK", length: int | None = None) -> Serve:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n"

    def serve(connected: socket.socket) -> None:
        connected.recv(65536)
        connected.sendall(head.encode() + body)

    return serve


def said(number: int = 0, **more: object) -> bytes:
    return dumps(report(number, 4, model(1, 8), **more)).encode()


def heard(folder: pathlib.Path, serve: Serve) -> Rank:
    with listening(socket_of(folder, 0), serve):
        return ask_folder(folder, patience=5.0)[0]


@pytest.fixture
def job(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "job"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_ranks, "FIRST_WAIT", 0.2)
    monkeypatch.setattr(ask_ranks, "SECOND_WAIT", 0.1)


def test_an_answer_is_what_the_rank_said(job: pathlib.Path):
    found = heard(job, answer(said()))
    assert (found.state, found.said) == ("answered", report(0, 4, model(1, 8)))


@pytest.mark.parametrize(("seconds", "state"), [(4.9, "answered"), (5.0, "hung")])
def test_a_rank_that_waits_long_in_a_collective_hangs(job: pathlib.Path, seconds: float, state: str):
    waits = Collective("all_reduce", 12, "dp", (0, 1), seconds=seconds)
    assert heard(job, answer(said(collective=waits))).state == state


def test_a_rank_that_waits_for_a_dead_one_hangs_at_once(job: pathlib.Path):
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(socket_of(job, 1)))
    waits = Collective("all_reduce", 12, "dp", (0, 1), seconds=0.1)
    with listening(socket_of(job, 0), answer(said(collective=waits))):
        assert [each.state for each in ask_folder(job, patience=5.0)] == ["hung", "dead"]


@pytest.mark.parametrize("body", [
    b"{", b"\xff\xfe", b"[" * 100_000, b"null", b'{"devwidget": 1, "record": "Trace", "data": {}}', said(3),
])  # fmt: skip
def test_an_answer_of_any_other_shape_is_refused(job: pathlib.Path, body: bytes):
    found = heard(job, answer(body))
    assert (found.state, found.said.announced) == ("busy", True)
    assert "answer" in found.note


@pytest.mark.usefixtures("in_a_hurry")
@pytest.mark.parametrize("serve", [
    lambda connected: None, answer(b"x", length=100), lambda connected: connected.sendall(b"nonsense\r\n\r\n"),
    lambda connected: connected.close(),
])  # fmt: skip
def test_a_server_that_does_not_answer_is_busy(job: pathlib.Path, serve: Serve):
    assert heard(job, serve).state == "busy"


@pytest.mark.usefixtures("in_a_hurry")
@pytest.mark.parametrize(
    ("sent", "again", "pause"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", 0.0),
        (b"HTTP/1.1 200 OK\r\n", b"A", 0.05),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 0.05),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", b"x" * 65536, 0.0),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"x", 0.05),
    ],
)
def test_a_server_that_never_ends_is_busy_after_its_time(job: pathlib.Path, sent: bytes, again: bytes, pause: float) -> None:
    ended = threading.Event()

    def serve(connected: socket.socket) -> None:
        connected.settimeout(1.0)
        connected.sendall(sent)
        while not ended.wait(pause):
            connected.sendall(again)

    with listening(socket_of(job, 0), serve):
        assert ask_rank(job, 0).state == "busy"
        ended.set()


@pytest.mark.parametrize("name", ["rank-0.json", "rank-0.sock"])
@pytest.mark.parametrize("kind", ["pipe", "link to a device", "folder", "large file"])
def test_what_is_no_file_of_a_rank_holds_nobody_up(job: pathlib.Path, name: str, kind: str) -> None:
    path = job / name
    {
        "pipe": lambda: os.mkfifo(path),
        "link to a device": lambda: path.symlink_to("/dev/zero"),
        "folder": lambda: path.mkdir(),
        "large file": lambda: (path.touch(), os.truncate(path, 1 << 30)),
    }[kind]()
    (rank,) = devwidget.ranks(job).ranks
    assert rank.state in ("unknown", "dead", "busy")


def test_a_file_with_a_number_that_no_rank_has_is_none_of_the_job(job: pathlib.Path) -> None:
    file_of(job, 9_999_999).write_bytes(said(0))
    file_of(job, 0).write_bytes(said(0))
    assert [each.number for each in ask_folder(job)] == [0]


def announced(number: int, world: int = 4, **more: object) -> RankReport:
    said: dict[str, object] = {"host": socket.gethostname(), "pid": os.getpid(), "taken": 1_800_000_000.0, "job": "one", **more}
    return RankReport(number, world, announced=True, **said)


def gone_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_an_announcement_is_no_answer(job: pathlib.Path):
    for number, facts in enumerate([{"pid": gone_pid()}, {}, {"host": "node7"}]):
        file_of(job, number).write_text(dumps(announced(number, **facts)))
    ranks = devwidget.ranks(job).ranks
    assert [rank.state for rank in ranks] == ["dead", "unknown", "unknown", "unknown"]
    assert [rank.note for rank in ranks[:3]] == [
        "its process ended without a final report",
        "its socket refuses connections, but a process with its number exists",
        "it answers only on node7; query it there",
    ]


def test_a_socket_of_another_machine_in_a_shared_folder_is_not_that_of_a_dead_rank(job: pathlib.Path):
    file_of(job, 0).write_text(dumps(announced(0, host="node7")))
    with socket.socket(socket.AF_UNIX) as elsewhere:
        elsewhere.bind(str(socket_of(job, 0)))
    assert [ask_rank(job, 0).state, ask_rank(job, 0).said.host] == ["unknown", "node7"]


@pytest.mark.parametrize("facts", [{"world": 2}, {"job": "two"}])
def test_files_of_an_older_job_in_the_same_folder_are_told_apart(job: pathlib.Path, facts: dict[str, object]):
    for number in range(4):
        file_of(job, number).write_text(dumps(announced(number, pid=gone_pid())))
    newer = announced(0, **{"world": 4, "taken": 1_800_000_009.0, **facts})
    said = RankReport(0, newer.world_size, newer.host, newer.pid, taken=newer.taken, job=newer.job)
    file_of(job, 0).write_text(dumps(newer))
    with listening(socket_of(job, 0), answer(dumps(said).encode())):
        cluster = devwidget.ranks(job)
    assert [rank.state for rank in cluster.ranks] == ["answered"] + ["unknown"] * (newer.world_size - 1)
    assert cluster.older == ((1, 3),)
    assert "ranks 1-3 of another job left files here" in str(cluster)


def test_several_folders_and_files_are_one_job(job: pathlib.Path, tmp_path: pathlib.Path):
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    waits = Collective("all_reduce", 12, "dp", (0, 1), seconds=9.0)
    file_of(job, 0).write_text(dumps(announced(0)))
    file_of(other, 1).write_text(dumps(announced(1, pid=gone_pid())))
    with listening(socket_of(job, 0), answer(said(collective=waits, job="one"))):
        for source in ([job, other], [file_of(job, 0), file_of(other, 1)], [job, file_of(other, 1)]):
            assert [rank.state for rank in devwidget.ranks(source).ranks] == ["hung", "dead", "unknown", "unknown"]


def test_saved_jobs_are_put_together_by_their_files_and_as_they_are(job: pathlib.Path, tmp_path: pathlib.Path):
    saved = []
    for number in (0, 2):
        file_of(job, number).write_bytes(said(number))
        saved.append(devwidget.ranks(job))
        saved[-1].save(tmp_path / f"node{number}.json")
        file_of(job, number).unlink()
    files = [tmp_path / "node0.json", tmp_path / "node2.json"]
    for source in (files, saved, [files[0], saved[1]]):
        found = devwidget.ranks(source)
        assert [rank.state for rank in found.ranks] == ["answered", "unknown", "answered", "unknown"]
    assert [rank.state for rank in devwidget.ranks(saved[0]).ranks] == ["answered", "unknown", "unknown", "unknown"]


def ended(number: int, how: str, **more: object) -> RankReport:
    word = LastWord(how, "ValueError: boom", every=float(more.pop("every", 0.0)))
    return dataclasses.replace(report(number, 4, model(1, 8), taken=time.time()), last_word=word, **more)


def test_what_a_rank_of_another_machine_writes_from_time_to_time_is_its_answer_while_it_is_new(job: pathlib.Path):
    elsewhere = {"host": "node7", "machine": "another one", "every": 5.0}
    file_of(job, 0).write_text(dumps(ended(0, "running", **elsewhere)))
    file_of(job, 1).write_text(dumps(dataclasses.replace(ended(1, "running", **elsewhere), taken=time.time() - 60)))
    ranks = devwidget.ranks(job).ranks
    assert [rank.state for rank in ranks[:2]] == ["answered", "stale"]
    assert ranks[1].note == "no report for 60 s"


@pytest.mark.parametrize(
    ("fields", "state"), [({"machine": find_machine(), "started": 1}, "dead"), ({"machine": "another one"}, "unknown")]
)
def test_a_process_that_began_later_or_on_another_machine_is_another(
    job: pathlib.Path, fields: dict[str, object], state: str
) -> None:
    file_of(job, 0).write_text(dumps(dataclasses.replace(announced(0), **fields)))
    assert ask_rank(job, 0).state == state


def test_a_file_that_is_older_than_the_others_is_stale(job: pathlib.Path):
    for number in (0, 1):
        file_of(job, number).write_bytes(said(number, taken=1_800_000_000.0 + 900 * number))
    assert [each.state for each in ask_folder(job)] == ["stale", "answered"]


def test_what_is_no_rank_is_refused(job: pathlib.Path):
    with pytest.raises(DevwidgetError, match="no ranks"):
        devwidget.ranks(job)
    (job / "other.json").write_text("{}")
    with pytest.raises(DevwidgetError, match="cannot read"):
        devwidget.ranks([job / "other.json"])
    with pytest.raises(DevwidgetError, match="cannot query ranks from"):
        devwidget.ranks(7)


def test_a_process_is_running_stopped_or_gone():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert read_process_state(child.pid) == "running"
    os.kill(child.pid, signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    assert read_process_state(child.pid) == "stopped"
    child.kill()
    child.communicate()
    assert read_process_state(child.pid) == "gone"
    assert read_process_state(0) == "unknown"
