"""What an open panel costs while a long cell runs: processor time of one look at memory, once a second, beside one core.

    python benchmarks/panel_live.py [--gpus 1 8] [--modules 160 10000]

The GPUs are virtual, and their memory changes between any two looks, so that each one draws and sends.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn

import devwidget

LOOKS = 30


def milliseconds(gpus: int, modules: int) -> float:
    """Median processor time of one look."""
    with devwidget.simulate(gpus=gpus, memory="8GiB"):
        model = nn.Sequential(*(nn.Linear(2, 2).to(f"cuda:{at % gpus}") for at in range(modules)))
        panel = devwidget.show(model)
        times, kept = [], []
        for _ in range(LOOKS):
            kept += [torch.empty(1 << 16, device=f"cuda:{at}") for at in range(gpus)]
            started = time.process_time()
            assert panel.sample_memory()
            times.append((time.process_time() - started) * 1e3)
        panel.close()
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--modules", type=int, nargs="+", default=[160, 10_000])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'GPUs':>4} {'modules':>8} {'one look':>12} {'of one core':>12}")
    for gpus in options.gpus:
        for modules in options.modules:
            look = milliseconds(gpus, modules)
            print(f"{gpus:>4} {modules:>8,} {look:>9.2f} ms {look / 10:>10.2f} %")


if __name__ == "__main__":
    main()
