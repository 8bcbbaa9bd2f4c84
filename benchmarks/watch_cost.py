"""What `devwidget.watch` costs while no step is recorded: a training step with and without it, in turns, in the same run.

    python benchmarks/watch_cost.py

One thread, CPU time, medians. The hooks do the same for each model, so that what they add to a small one says best what they
add to a large one, whose own time varies by more than that.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from workloads import WORKLOADS, Workload

import devwidget

ROUNDS, LEAST_S = 15, 0.05
NEVER = 10**9
SMALL = "four-layer MLP"
MODELS = (SMALL, "thin GPT-2, launch-bound", "ResNet-50, 224", "GPT-2 small, 1 x 128")


def seconds(step: Callable[[], object], steps: int) -> float:
    started = time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - started) / steps


def compare(load: Workload) -> tuple[float, float]:
    """Median CPU seconds of a step, plain and watched."""
    load.model.train()
    run = devwidget.watch(load.model, load.optimizer, every=NEVER)
    with run:
        for _ in range(15):  # the first steps, of which one is recorded
            load.step()
    steps = max(1, round(LEAST_S / seconds(load.step, 1)))
    plain, watched = [], []
    for _ in range(ROUNDS):
        plain.append(seconds(load.step, steps))
        with run:
            watched.append(seconds(load.step, steps))
    return statistics.median(plain), statistics.median(watched)


def main() -> None:
    torch.set_num_threads(1)
    added = 0.0
    print(f"{'':26}{'plain ms':>10}{'watched ms':>12}{'ratio':>8}{'by the MLP':>12}")
    for name in MODELS:
        plain, watched = compare(WORKLOADS[name]())
        added = added or watched - plain
        print(f"{name:26}{plain * 1e3:10.2f}{watched * 1e3:12.2f}{watched / plain:8.3f}{1 + added / plain:12.4f}", flush=True)
    print(f"{added * 1e6:.0f} microseconds a step")


if __name__ == "__main__":
    main()
