"""What a recording and a watch cost on a card: `python -m tests.gpu.costs`, seconds by the clock, the card waited for.

Plain steps and watched ones take turns in one process; medians.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

import devwidget
from tests.gpu.places import HAS_CARD
from tests.gpu.report import note

sys.path.insert(0, "benchmarks")
from workloads import WORKLOADS, Workload

ROUNDS, LEAST_S = 25, 0.05
MODELS = ("four-layer MLP", "thin GPT-2, launch-bound", "ResNet-50, 224", "GPT-2 small, 1 x 128")
Step = Callable[[], object]


def seconds(step: Step, count: int) -> float:
    """Of a step, the card waited for."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / count


@contextlib.contextmanager
def recorded(load: Workload) -> Iterator[Step]:
    with devwidget.record() as recording:
        recording.attach(load.model, optimizer=load.optimizer)
        yield load.step


@contextlib.contextmanager
def profiled(load: Workload) -> Iterator[Step]:
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds):
        yield load.step


def on_card(load: Workload) -> Workload:
    load.model.cuda().train()
    load.batch = tuple(each.cuda() for each in load.batch)
    return load


def compare(load: Workload, count: int, watched: Callable[[], contextlib.AbstractContextManager[Step]]) -> tuple[float, float]:
    """Medians of plain steps and of watched ones."""
    plain, ours = [], []
    for _ in range(ROUNDS if count > 1 else ROUNDS // 3):
        plain.append(seconds(load.step, count))
        with watched() as step:
            ours.append(seconds(step, count))
    return statistics.median(plain), statistics.median(ours)


def main() -> None:
    """One line for each model and tool."""
    for name in MODELS:
        load = on_card(WORKLOADS[name]())
        for _ in range(5):
            load.step()
        many = max(2, round(LEAST_S / seconds(load.step, 3)))
        run = devwidget.watch(load.model, load.optimizer, every=10**9)
        with run:
            for _ in range(15):
                load.step()

        @contextlib.contextmanager
        def watching(run: Any = run, load: Workload = load) -> Iterator[Step]:
            with run:
                yield load.step

        ways: dict[str, tuple[int, Callable[[], Any]]] = {
            "watch": (many, watching),
            "record": (1, lambda load=load: recorded(load)),
            "torch.profiler": (1, lambda load=load: profiled(load)),
        }
        for way, (count, watched) in ways.items():
            plain, ours = compare(load, count, watched)
            text = f"{name}, {way}: {ours / plain:.3f} times plain ({plain * 1e3:.3f} ms)"
            print(text, flush=True)
            note("costs", text, model=name, way=way, plain=plain, watched=ours)
        del load, run


if __name__ == "__main__":
    if HAS_CARD:
        main()
    else:
        print("no card: costs are those of one")
