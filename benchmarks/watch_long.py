"""What a long run holds: memory of a watched process over 100,000 steps, and how fast a file of a million steps opens.

    python benchmarks/watch_long.py [steps of the run] [steps of the file]

Resident memory is read after each fifth of the run, past the garbage collector. The file is written as a run writes it.
"""

from __future__ import annotations

import gc
import pathlib
import statistics
import sys
import tempfile
import time

import torch
from torch import nn

import devwidget
from devwidget.extras.watch.run_log import RunLog

STEPS, FILED, OPENINGS = 100_000, 1_000_000, 5
KIB_OF_PAGE = 4


def resident_mib() -> float:
    """Of this process, as Linux tells."""
    gc.collect()
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * KIB_OF_PAGE / 1024


def watch_run(steps: int, folder: pathlib.Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batch = torch.randn(4, 8)
    path = folder / "run.jsonl"
    with devwidget.watch(model, optimizer, path=path) as run:
        for step in range(1, steps + 1):
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % (steps // 5) == 0:
                told = f"{step:,} steps: {resident_mib():.1f} MiB resident"
                print(f"{told}, {path.stat().st_size / 2**20:.2f} MiB written, {len(run.recorded)} steps recorded are kept")


def open_file(steps: int, folder: pathlib.Path) -> None:
    path = folder / "file.jsonl"
    log = RunLog("Net", path)
    row = {"count": 1, "data": 813, "forward": 2954, "loss": 120, "backward": 5903, "optimizer": 730}
    held = {"cuda:0 allocated": 3 << 30, "cuda:0 reserved": 5 << 30, "cuda:0 peak": 4 << 30}
    for step in range(steps):
        log.add_row({"first": step, **row, **held})
    log.write_part(ends=True)
    taken = []
    for _ in range(OPENINGS):
        started = time.perf_counter()
        opened = devwidget.open(path)
        taken.append(time.perf_counter() - started)
    assert opened.steps.total == steps
    print(f"{steps:,} steps, {path.stat().st_size / 2**20:.2f} MiB: opened in {statistics.median(taken):.2f} s")


def main(steps: int = STEPS, filed: int = FILED) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        open_file(filed, pathlib.Path(folder))
        watch_run(steps, pathlib.Path(folder))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
