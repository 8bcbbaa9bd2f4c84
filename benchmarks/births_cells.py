"""What births that are watched by themselves cost a training cell of 60 s: with and without them, in turns, in one process.

    python benchmarks/births_cells.py

One thread, CPU time, medians. A cell is as long as its calls are watched and a little longer, so that it loses what one of a
minute loses.
"""

from __future__ import annotations

import statistics
import time

import torch
from workloads import WORKLOADS, Workload

from devwidget.capture import background_births

ROUNDS, MINUTE_S = 7, 60.0
MODELS = ("four-layer MLP", "thin GPT-2, launch-bound", "llama, 48 thin layers")


def run_cell(load: Workload, steps: int, *, watched: bool) -> float:
    """CPU seconds of a cell."""
    started = time.process_time()
    if watched:
        background_births.begin_cell()
    for _ in range(steps):
        load.step()
    background_births.pause_watching()
    return time.process_time() - started


def is_watched() -> bool:
    """Whether calls are watched now."""
    return bool(torch.overrides._get_current_function_mode_stack())


def steps_watched(load: Workload) -> int:
    """How many steps of a cell are watched."""
    background_births.begin_cell()
    steps = 0
    while is_watched():
        load.step()
        steps += 1
    background_births.pause_watching()
    return steps


def compare(load: Workload, rounds: int = ROUNDS) -> tuple[float, float]:
    """CPU seconds of a cell whose steps are all watched but the last few, plain and watched."""
    load.model.train()
    load.step()
    steps_watched(load)  # the first time imports
    steps = steps_watched(load) + 2
    plain, watched = [], []
    for _ in range(rounds):
        plain.append(run_cell(load, steps, watched=False))
        watched.append(run_cell(load, steps, watched=True))
    return statistics.median(plain), statistics.median(watched)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{'':28}{'plain s':>10}{'watched s':>11}{'ratio of a cell of 60 s':>25}")
    for model in MODELS:
        plain, watched = compare(WORKLOADS[model]())
        print(f"{model:28}{plain:10.2f}{watched:11.2f}{1 + (watched - plain) / MINUTE_S:25.4f}")


if __name__ == "__main__":
    main()
