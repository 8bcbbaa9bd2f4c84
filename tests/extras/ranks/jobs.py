"""Real processes of a job: started, told what to do, and ended whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from devwidget.extras.ranks.job import FOLDER_VARIABLE, make_private

ROOT = pathlib.Path(__file__).parents[3]
TRAINING = pathlib.Path(__file__).with_name("training.py")
LONGEST = 120
"""Seconds that a job may take to start on a machine that does other things too."""


@dataclass
class Job:
    """The ranks of one job.

    Attributes:
        folder: where they answer.
        process: its launcher, or its only rank.
    """

    folder: pathlib.Path
    process: subprocess.Popen[str]

    def pid(self, rank: int) -> int:
        return int(json.loads((self.folder / f"rank-{rank}.json").read_text())["data"]["pid"])

    def signal(self, rank: int, number: signal.Signals) -> None:
        os.kill(self.pid(rank), number)


@contextlib.contextmanager
def running(command: Sequence[str], **environ: str) -> Iterator[Job]:
    """A job whose folder is made for it; short, because the path of a socket must be."""
    with tempfile.TemporaryDirectory(prefix="ranks-") as above:
        folder = make_private(pathlib.Path(above) / "job")
        settings = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", FOLDER_VARIABLE: str(folder), **environ}
        process = subprocess.Popen(
            [sys.executable, *command], env=os.environ | settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            yield Job(folder, process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            _kill_ranks(folder)
            process.communicate()


def _kill_ranks(folder: pathlib.Path) -> None:
    """Torchrun gives each rank a session of its own."""
    for path in folder.glob("rank-*.json"):
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # one that ends takes its file away
            os.kill(int(json.loads(path.read_text())["data"]["pid"]), signal.SIGKILL)


@contextlib.contextmanager
def torchrun(ranks: int, *args: str, module: Sequence[str] = (), **environ: str) -> Iterator[Job]:
    """The training program on some ranks."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    with running([*launcher, *module, str(TRAINING), *args], **environ) as job:
        yield job


def forked(ranks: int, program: pathlib.Path, *args: str, **environ: str) -> contextlib.AbstractContextManager[Job]:
    """A program on some ranks without a launcher, which would import torch for each, and end all when one of them ends."""
    return running(["-m", "tests.extras.ranks.forked", str(ranks), str(program), *args], **environ)


def four_processes(*args: str, program: pathlib.Path = TRAINING, **environ: str) -> contextlib.AbstractContextManager[Job]:
    """The training program, or another one, on four of them."""
    return forked(4, program, *args, **environ)


def wait_for(seen: Callable[[], Any], seconds: float = LONGEST, pause: float = 0.1) -> Any:
    """What is seen as soon as it is true."""
    until = time.monotonic() + seconds
    while not (found := seen()):
        assert time.monotonic() < until, "it did not come"
        time.sleep(pause)
    return found
