"""The agent of one rank: whom it answers, what it says, and what it leaves alone."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
from collections.abc import Iterator

import pytest
import torch

import devwidget
from devwidget.extras.ranks import step_history
from devwidget.extras.ranks.answer import Reporter
from devwidget.extras.ranks.ask_ranks import ask_rank
from devwidget.extras.ranks.job import HANDLER, find_identity, socket_of
from devwidget.extras.ranks.records.rank import LocalTensor
from devwidget.extras.ranks.unix_http import Line
from devwidget.records.errors import DevwidgetError
from tests.extras.ranks.jobs import LONGEST, Job, running, wait_for

pytestmark = pytest.mark.process
NOBODY = 65534
_PROGRAM = """
import devwidget, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = nn.Linear(4, 2), nn.BatchNorm1d(2)

def train():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        model.norm(model.inner(torch.ones(8, 4))).sum().backward()
        optimizer.step()
    print("ready", flush=True)
    input()  # the line where it waits

agent = devwidget.serve()
train()
agent.stop()
print("stopped", flush=True)
input()
again = devwidget.serve()
print("again", flush=True)
input()
"""


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    program = tmp_path_factory.mktemp("program") / "train.py"
    program.write_text(_PROGRAM)
    with running([str(program)], RANK="2", WORLD_SIZE="4", LOCAL_RANK="2") as job:
        assert job.process.stdout is not None
        assert job.process.stdout.readline() == "ready\n"
        wait_for(lambda: ask_rank(job.folder, 2).said.stack[-1].text.startswith("input()"))  # `print` has returned too
        yield job


def test_a_rank_says_what_it_holds_where_it_is_and_how_far_it_came(one_rank: Job):
    said = ask_rank(one_rank.folder, 2).said
    assert (said.rank, said.world_size, said.pid) == (2, 4, one_rank.process.pid)
    assert [module.path for module in said.model.modules] == ["", "inner", "norm"]
    assert said.model.holdings[said.model.held[1]] == (
        LocalTensor("weight", "parameter", (2, 4), (2, 4), "float32", 32, 32, requires_grad=True),
        LocalTensor("bias", "parameter", (2,), (2,), "float32", 8, 8, requires_grad=True),
    )
    assert [tensor.role for tensor in said.model.holdings[said.model.held[2]]] == ["parameter"] * 2 + ["buffer"] * 3
    assert said.step == 3
    assert said.stack[-1].text.startswith("input()")
    assert [site.function for site in said.stack] == ["<module>", "train"]


@pytest.mark.parametrize("body", [b"{}", b"\xff" * 20])
def test_a_question_with_anything_in_it_is_refused(one_rank: Job, body: bytes):
    answer = Line(socket_of(one_rank.folder, 2), 5.0).ask(HANDLER, body)
    assert answer.status == 400
    assert ask_rank(one_rank.folder, 2).state == "answered"


@pytest.mark.parametrize(
    "raw", [b"\x00" * 1000, b"GET / HTTP/9.9\r\n\r\n", b"POST /handler/devwidget HTTP/1.1\r\nContent-Length: -5\r\n\r\n"]
)
def test_what_is_no_question_at_all_does_no_harm(one_rank: Job, raw: bytes):
    with socket.socket(socket.AF_UNIX) as line, contextlib.suppress(OSError):
        line.settimeout(3)
        line.connect(str(socket_of(one_rank.folder, 2)))
        line.sendall(raw)
        assert b"RankReport" not in line.recv(65536)
    assert ask_rank(one_rank.folder, 2).state == "answered"


def as_another_user(attempt: str) -> int:
    """What errno another user gets; 0 if it succeeds."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            if attempt.endswith(".sock"):
                socket.socket(socket.AF_UNIX).connect(attempt)
            else:
                os.listdir(attempt) if os.path.isdir(attempt) else open(attempt).close()
            status = 0
        except OSError as error:
            status = error.errno or 98
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_can_neither_ask_nor_read(one_rank: Job):
    one_rank.folder.parent.chmod(0o755)  # what is above is not what keeps others out
    for name in ("", "rank-2.sock", "rank-2.json"):
        assert as_another_user(str(one_rank.folder / name)) == 13  # EACCES


def test_it_listens_on_no_port(one_rank: Job):
    """Sockets of the process that are neither unix sockets nor anything else would be in these tables."""
    inodes = {os.readlink(link) for link in pathlib.Path(f"/proc/{one_rank.process.pid}/fd").iterdir() if link.exists()}
    tables = [pathlib.Path(f"/proc/{one_rank.process.pid}/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    listening = [row.split()[9] for table in tables for row in table if row.split()[3] == "0A"]
    assert not {f"socket:[{inode}]" for inode in listening} & inodes


def left_in(folder: pathlib.Path) -> dict[str, str]:
    """Files, and how the rank that wrote each has ended."""
    words = {path.name: devwidget.load(path).last_word for path in folder.iterdir() if path.suffix == ".json"}
    return {name: word.how for name, word in words.items() if word is not None}


def test_an_agent_that_was_stopped_leaves_only_that_it_ended(one_rank: Job):
    assert one_rank.process.stdin is not None
    assert one_rank.process.stdout is not None
    with socket.socket(socket.AF_UNIX) as half_asked:
        half_asked.settimeout(LONGEST)
        half_asked.connect(str(socket_of(one_rank.folder, 2)))
        half_asked.sendall(b"POST /handler/")
        one_rank.process.stdin.write("\n")
        one_rank.process.stdin.flush()
        assert one_rank.process.stdout.readline() == "stopped\n"
        while half_asked.recv(1000):  # nobody may want Python when it is over: the process would abort
            pass
    wait_for(lambda: [path.name for path in one_rank.folder.iterdir()] == ["rank-2.json"])
    assert left_in(one_rank.folder) == {"rank-2.json": "ended"}
    assert devwidget.ranks(one_rank.folder).ranks[2].state == "ended"
    one_rank.process.stdin.write("\n")
    one_rank.process.stdin.flush()
    assert one_rank.process.stdout.readline() == "again\n"  # and may begin anew
    assert [rank.state for rank in devwidget.ranks(one_rank.folder).ranks if rank.state != "unknown"] == ["answered"]


def test_a_process_ends_as_it_did_while_it_answers(one_rank: Job):
    """The last test of this process. Torch lets go of what it was given when Python is over."""
    assert one_rank.process.stdin is not None
    one_rank.process.stdin.write("\n" * 3)
    one_rank.process.stdin.flush()
    assert one_rank.process.wait(LONGEST) == 0
    assert left_in(one_rank.folder) == {"rank-2.json": "ended"}
    assert not list(one_rank.folder.glob("*.sock"))


def test_a_process_that_is_no_rank_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path):
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(DevwidgetError, match="this process is not a rank"):
        devwidget.serve(folder=tmp_path / "job")
    assert not (tmp_path / "job").exists()


def test_what_is_no_model_is_refused():
    with pytest.raises(DevwidgetError, match="not a torch"):
        devwidget.serve(torch.ones(1))  # type: ignore[arg-type]


@pytest.mark.parametrize(("environ", "found"), [
    ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
    ({"SLURM_PROCID": "5", "SLURM_NTASKS": "16"}, (5, 16)),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, (0, 2)),
])  # fmt: skip
def test_each_launcher_says_which_rank_it_is(environ: dict[str, str], found: tuple[int, int]):
    said = find_identity(environ)
    assert (said.rank, said.world_size) == found


def test_a_torch_without_its_server_is_refused_by_name(monkeypatch: pytest.MonkeyPatch):
    from devwidget.capture import torch_internals

    monkeypatch.setitem(torch_internals.NEEDED["answering for a rank"], "WorkerServer", "torch.no_such_server")
    torch_internals._checked.discard("answering for a rank")
    with pytest.raises(DevwidgetError, match=r"no `torch\.no_such_server`, which answering for a rank needs"):
        devwidget.serve()


def test_a_step_that_cannot_be_read_is_told(monkeypatch: pytest.MonkeyPatch):
    """It must not end the step, and who asks has to know why nothing more is compared."""

    def fail(optimizers: object) -> None:
        raise TypeError("like no other")

    monkeypatch.setattr(step_history, "read_optimizers", fail)
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters())
    reporter = Reporter(None, lambda: ())
    reporter.history.note_step(optimizer)
    said = reporter.make_report(find_identity({"RANK": "0", "WORLD_SIZE": "1"}))
    assert said.step == 1
    assert said.note.endswith("; optimizer settings are unknown after a step that could not be read: TypeError: like no other")
