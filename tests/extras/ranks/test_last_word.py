"""The last word of a process: it is said at each end that can be caught, once, and the process ends as it would without us."""

from __future__ import annotations

import pathlib
import signal
import subprocess

import pytest

import devwidget
from devwidget.extras.ranks.records.rank import RankReport
from tests.forked_programs import programs

pytestmark = pytest.mark.process
_BEGIN = """
import os, signal, sys, threading, time, torch, devwidget
from torch import nn
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_TRAIN = """
for _ in range(3):
    model(torch.ones(4)).sum().backward()
    optimizer.step()
"""
_TERMINATE = "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()"


def run(folder: pathlib.Path, *lines: str, started: str = "devwidget.serve(model)") -> subprocess.CompletedProcess[str]:
    program = folder.with_suffix(".py")
    program.write_text("\n".join((_BEGIN, started, _TRAIN, *lines)))
    return programs().run(folder.parent, str(program), DEVWIDGET_RANKS=str(folder), RANK="0", WORLD_SIZE="1")


def said(folder: pathlib.Path) -> RankReport:
    found = devwidget.load(folder / "rank-0.json")
    assert isinstance(found, RankReport)
    return found


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "job"


def test_an_exception_leaves_what_was_held_and_is_shown_as_always(folder: pathlib.Path):
    ended = run(folder, "def fail(net):", "    raise ValueError('boom')", "fail(model)")
    word = said(folder)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (1, "ValueError: boom")
    assert word.last_word is not None
    assert (word.last_word.how, word.last_word.error) == ("raised", "ValueError: boom")
    assert [site.text for site in word.stack][-2:] == ["fail(model)", "raise ValueError('boom')"]
    assert (word.step, word.model is not None, [each.value for each in word.steps[-1].settings][:1]) == (3, True, ["SGD"])


def test_a_process_that_waits_in_c_is_ended_by_a_signal_and_has_said_its_last_word(folder: pathlib.Path):
    wait = "import ctypes; [ctypes.CDLL(None).sleep(60) for _ in range(9)]"  # a signal ends one of them early
    ended = run(folder, _TERMINATE, wait)
    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, "")
    assert (said(folder).last_word.how, said(folder).last_word.error) == ("terminated", "SIGTERM")
    assert said(folder).stack[-1].text == wait


@pytest.mark.slow
@pytest.mark.parametrize("is_first", [True, False])
def test_a_program_that_has_a_handler_decides_itself(folder: pathlib.Path, is_first: bool):
    own = "signal.signal(signal.SIGTERM, lambda *_: print('mine'))"
    before, after = (own, "") if is_first else ("", own)
    kill = "os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.2)"
    ended = run(folder, after, kill, started=f"{before}\ndevwidget.serve(model)")
    assert (ended.returncode, ended.stdout) == (0, "mine\n")
    assert said(folder).last_word.how == "ended"


@pytest.mark.slow
def test_a_worker_that_is_ended_takes_nothing_with_it(folder: pathlib.Path):
    """A forked child has the sockets of its parent, and would tell it of its own signal."""
    fork = "child = os.fork()\nif not child: time.sleep(60)"
    kill = "time.sleep(0.2); os.kill(child, signal.SIGTERM); print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    ended = run(folder, fork, kill, "time.sleep(0.3)")
    assert (ended.returncode, ended.stdout) == (0, f"{-signal.SIGTERM}\n")
    assert said(folder).last_word.how == "ended"


@pytest.mark.slow
def test_a_child_of_multiprocessing_says_how_it_ended(folder: pathlib.Path):
    work = "def work(at):\n    devwidget.serve(model)\n    raise KeyError('x')"
    spawned = "try: torch.multiprocessing.start_processes(work, start_method='fork')"
    assert run(folder, spawned, "except Exception as error: print(type(error).__name__)", started=work).stdout == (
        "ProcessRaisedException\n"
    )
    assert (said(folder).last_word.how, said(folder).last_word.error) == ("raised", "KeyError: 'x'")


@pytest.mark.parametrize(("line", "how", "status"), [
    ("pass", "ended", 0), ("sys.exit(0)", "ended", 0), ("raise KeyError('x')", "raised", 1), ("sys.exit(3)", "raised", 3),
])  # fmt: skip
def test_a_block_says_by_what_it_was_left(folder: pathlib.Path, line: str, how: str, status: int):
    twice = f"with devwidget.serve(model):\n    pass\nwith devwidget.serve(model):\n    {line}"
    assert run(folder, started=twice).returncode == status
    assert said(folder).last_word.how == how


def test_it_writes_from_time_to_time_if_asked(folder: pathlib.Path):
    wait = f"while len(devwidget.load({str(folder / 'rank-0.json')!r}).ends) < 2: time.sleep(0.1)"
    run(folder, wait, "os._exit(0)", started="devwidget.serve(model, every=0.1, checksums=True)")
    word = said(folder)
    assert (word.last_word.how, word.last_word.every) == ("running", 0.1)
    assert (word.checksums_step, len(word.checksums)) == (2, 2)
    assert devwidget.ranks(folder).ranks[0].state == "dead"
