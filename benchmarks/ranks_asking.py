"""How long the ranks of a real job take to answer, and what an agent that nobody asks costs each step.

    python benchmarks/ranks_asking.py [--runs 20]

Milliseconds by the clock: least, median and most. A rank hangs with torch's flight recorder full, whose first reading is the
slowest; 1,000 modules on four ranks are what `devwidget.ranks` takes beyond a question that torch's own server answers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # each agent says where it listens

import torch
import torch.distributed as dist
from torch import nn

import devwidget
from devwidget.extras.ranks.ask_ranks import ask_rank
from devwidget.extras.ranks.job import socket_of
from devwidget.extras.ranks.unix_http import Line
from tests.extras.ranks.jobs import Job, four_processes, wait_for

RECORDED = 2200
"""Collectives before the last; the recorder keeps 2,000."""
STEPS = 500


def main() -> None:
    """Print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--rank", type=int, metavar="MODULES", help="be a rank with so many modules")
    options = parser.parse_args()
    if options.rank is not None:
        be_a_rank(options.rank)
        return
    print(f"{'':<52}{'least':>8}{'median':>8}{'most':>8}  ms")
    for name, figures in (*hung(options.runs), *thousand_modules(options.runs), *faults(), *steps(options.runs)):
        print(f"{name:<52}{min(figures):>8.1f}{statistics.median(figures):>8.1f}{max(figures):>8.1f}", flush=True)


def be_a_rank(modules: int) -> None:
    """All but the last wait for it for ever, when each has begun as many collectives as fill its recorder."""
    dist.init_process_group("gloo")
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(modules - 1)))
    with devwidget.serve(model):
        for _ in range(RECORDED):
            dist.all_reduce(torch.ones(1))
        (pathlib.Path(os.environ["DEVWIDGET_RANKS"]) / f"ready-hung-{dist.get_rank()}").touch()
        if dist.get_rank() == 3:
            signal.pause()
        dist.all_reduce(torch.ones(1))


def waiting(modules: int) -> Any:
    """A job three of whose ranks wait for the last."""
    return four_processes("--rank", str(modules), program=pathlib.Path(__file__))


def wait_until_ready(job: Job, kind: str) -> None:
    wait_for(lambda: len(list(job.folder.glob(f"ready-{kind}-*"))) == 4)
    time.sleep(1)  # the last have begun to wait too


def hung(runs: int) -> Iterator[tuple[str, list[float]]]:
    """The first answer of each of three ranks, and later ones."""
    with waiting(modules=10) as job:
        wait_until_ready(job, "hung")
        ask_rank(job.folder, 3)  # what the first question loads here
        first = [taken(lambda rank=rank: ask_rank(job.folder, rank)) for rank in range(3)]
        yield "a hung rank, its recorder full: first answer", first
        yield "later answers", [taken(lambda: ask_rank(job.folder, 0)) for _ in range(runs)]


def thousand_modules(runs: int) -> Iterator[tuple[str, list[float]]]:
    """Round trips to four ranks at once, and what their answers take beyond the usual one of these."""
    with waiting(modules=1000) as job:
        wait_until_ready(job, "hung")
        devwidget.ranks(job.folder)
        trips = [taken(lambda: pinged(job)) for _ in range(runs)]
        usual = statistics.median(trips)
        yield "four ranks: round trip", trips
        beyond = [taken(lambda: devwidget.ranks(job.folder)) - usual for _ in range(runs)]
        yield "four ranks of 1,000 modules: beyond the round trip", beyond


def pinged(job: Job) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda rank: Line(socket_of(job.folder, rank), 5.0).ask("ping"), range(4)))


def faults() -> Iterator[tuple[str, list[float]]]:
    """Seven faults, four in one job and three in another: until all of them are told."""
    with four_processes("states", "0") as job:
        wait_until_ready(job, "states")
        job.signal(1, signal.SIGKILL)
        job.signal(3, signal.SIGSTOP)
        wait_for(lambda: states(job) == ["hung", "dead", "busy", "stopped"])
        yield "killed, busy in C++, hung and stopped: told after", [taken(lambda: states(job)) for _ in range(5)]
    with four_processes("different", "0") as job:
        wait_until_ready(job, "different")
        yield "dtype, device and step differ: told after", [taken(lambda: states(job)) for _ in range(5)]


def states(job: Job) -> list[str]:
    return [rank.state for rank in devwidget.ranks(job.folder).ranks]


def steps(runs: int) -> Iterator[tuple[str, list[float]]]:
    """Processor time of a step of a small model, without and with an agent, by turns."""
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1"}
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    optimizer, batch = torch.optim.SGD(model.parameters(), lr=0.01), torch.randn(32, 64)

    def train() -> float:
        began = time.process_time()
        for _ in range(STEPS):
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return 1_000_000 * (time.process_time() - began) / STEPS

    train()
    folder = f"/tmp/devwidget-cost-{os.getpid()}"
    alone, served = [], []
    for turn in range(runs):
        for serves in (turn % 2 > 0, turn % 2 == 0):  # neither is always the first
            with devwidget.serve(model, folder=folder) if serves else contextlib.nullcontext():
                (served if serves else alone).append(train())
    os.rmdir(folder)
    yield "a step without an agent, in microseconds", alone
    yield "a step with one that nobody asks", served
    yield "the difference, turn by turn", [after - before for before, after in zip(alone, served, strict=True)]


def taken(call: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    began = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - began)


if __name__ == "__main__":
    main()
