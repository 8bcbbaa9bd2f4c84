"""What watching a run costs while no step is recorded: a training step with and without it, in turns, in the same run.

    python benchmarks/watch_cost.py

One thread, CPU time, medians; beside torch.profiler, which waits for its schedule, and TraceML, where it is installed
(dependency group `bench`), whose other process, to which it sends its figures, is not counted. The hooks do the same for each
model, so that what they add to a small one says best what they add to a large one, whose own time varies by more than that.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import torch
from workloads import WORKLOADS, Workload

import devwidget

ROUNDS, LEAST_S = 15, 0.05
FEWEST, LONGEST_S = 3, 15.0
"""Rounds at least, and seconds after which there are no more."""
NEVER = 10**9
SMALL = "four-layer MLP"
MODELS = (SMALL, "thin GPT-2, launch-bound", "ResNet-50, 224", "GPT-2 small, 1 x 128")

Step = Callable[[], object]
Watched = Callable[[Workload], contextlib.AbstractContextManager[Step]]


def watcher(load: Workload) -> Watched:
    """One run that is entered again and again; its first steps, of which one is recorded, are over."""
    run = devwidget.watch(load.model, load.optimizer, every=NEVER)
    with run:
        for _ in range(15):
            load.step()

    @contextlib.contextmanager
    def watch(load: Workload) -> Iterator[Step]:
        with run:
            yield load.step

    return watch


def profiler(_: Workload) -> Watched:
    @contextlib.contextmanager
    def watch(load: Workload) -> Iterator[Step]:
        waiting = torch.profiler.schedule(wait=NEVER, warmup=1, active=1)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=waiting) as profile:

            def step() -> None:
                load.step()
                profile.step()

            yield step

    return watch


_SERVE = (
    "import sys; sys.argv = ['traceml', 'serve', '--logs-dir', sys.argv[1]]; from traceml_ai.launcher.cli import main; main()"
)


def traceml(_: Workload) -> Watched:
    import traceml_ai

    logs = tempfile.mkdtemp()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    served = subprocess.Popen([sys.executable, "-c", _SERVE, logs], **quiet)
    atexit.register(served.terminate)
    traceml_ai.init(mode="auto", logs_dir=logs, connect_timeout_sec=60, on_missing_aggregator="raise")

    @contextlib.contextmanager
    def watch(load: Workload) -> Iterator[Step]:
        def step() -> None:
            with traceml_ai.trace_step(load.model):
                load.step()

        yield step

    return watch


TOOLS: dict[str, Callable[[Workload], Watched]] = {"devwidget.watch": watcher, "torch.profiler, its schedule": profiler}
if importlib.util.find_spec("traceml_ai") is not None:
    TOOLS["TraceML"] = traceml


def seconds(step: Step, steps: int) -> float:
    started = time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - started) / steps


def compare(load: Workload, tool: str, rounds: int = ROUNDS) -> tuple[float, float]:
    """Median CPU seconds of a step, plain and watched; what a tool leaves installed counts for it alone, as it comes last."""
    load.model.train()
    load.step()
    steps = max(1, round(LEAST_S / seconds(load.step, 1)))
    fresh = min(seconds(load.step, steps) for _ in range(3))
    watch = TOOLS[tool](load)
    plain, watched, began = [], [], time.process_time()
    for number in range(rounds):
        if number >= FEWEST and time.process_time() - began > LONGEST_S:
            break
        plain.append(seconds(load.step, steps))
        with watch(load) as step:
            watched.append(seconds(step, steps))
    usual = statistics.median(plain)
    return (usual if tool == "devwidget.watch" else min(usual, fresh)), statistics.median(watched)


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'':26}{'':30}{'plain ms':>10}{'watched ms':>12}{'ratio':>8}{'by the MLP':>12}")
    added: dict[str, float] = {}
    for name in MODELS:
        for tool in TOOLS:
            plain, watched = compare(WORKLOADS[name](), tool)
            more = added.setdefault(tool, watched - plain)
            ratios = f"{watched / plain:8.3f}{1 + more / plain:12.4f}"
            print(f"{name:26}{tool:30}{plain * 1e3:10.2f}{watched * 1e3:12.2f}{ratios}", flush=True)
    print("; ".join(f"{tool}: {more * 1e6:.0f} microseconds a step" for tool, more in added.items()), file=sys.stdout)


if __name__ == "__main__":
    main()
