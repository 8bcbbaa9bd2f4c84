"""What `%devwidget births on` costs: the time of one call with and without it, in the same run.

    python benchmarks/births_cost.py

One thread; plain and watched rounds alternate, the medians are compared.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from devwidget.capture import background_births

ROUNDS, CALLS = 25, 400


def nanoseconds(call: Callable[[], object]) -> float:
    started = time.process_time_ns()
    for _ in range(CALLS):
        call()
    return (time.process_time_ns() - started) / CALLS


def compare(call: Callable[[], object]) -> tuple[float, float]:
    """Median CPU nanoseconds of one call, plain and watched."""
    plain, watched = [], []
    for _ in range(ROUNDS):
        plain.append(nanoseconds(call))
        background_births.begin_watching()
        watched.append(nanoseconds(call))
        background_births.end_watching()
    return statistics.median(plain), statistics.median(watched)


def main() -> None:
    torch.set_num_threads(1)
    x, layer = torch.ones(8), nn.Linear(8, 8)
    calls: dict[str, Callable[[], object]] = {
        "torch.zeros(8)": lambda: torch.zeros(8),
        "x.to(float64)": lambda: x.to(torch.float64),
        "x + x": lambda: x + x,
        "linear(x)": lambda: layer(x),
    }
    print(f"{'':18}{'plain us':>10}{'births on':>11}{'ratio':>8}{'more us':>9}")
    for name, call in calls.items():
        plain, watched = compare(call)
        print(f"{name:18}{plain / 1e3:10.2f}{watched / 1e3:11.2f}{watched / plain:8.2f}{(watched - plain) / 1e3:9.2f}")


if __name__ == "__main__":
    main()
