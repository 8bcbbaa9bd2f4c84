"""One figure of the benchmarks, measured in this process alone and printed as JSON.

    python benchmarks/figure.py recording "four-layer MLP" "devwidget.record" [--quick]

CPU time, not wall time, and plain PyTorch, or a bare loop that does the same, in the same run: a busy machine slows both alike.
Who asks sets the limit, by the wall: under `RLIMIT_CPU` Linux counts the time of a process in ticks of some milliseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from answer_cost import ANSWERS
from recorders import RECORDERS
from snapshot_cost import bare_walk, tree
from workloads import WORKLOADS, Workload, mlp

import devwidget

LONGEST_S = 1.0
"""CPU seconds after which a figure has rounds enough, if it has `FEWEST`; a call that takes longer itself is run once."""
FEWEST = 7
"""Rounds at least: processor time of one and the same pass of a large model varies by a tenth."""
CLOSE = 2.0
"""The ratio below which it matters."""
SLOWED = 1.25
"""Beyond this ratio a tool has made plain PyTorch slower itself: after some of them each pass asks the system for its memory
anew, page by page. Then plain as it was before counts."""
ONCE_S = 20.0
"""CPU seconds of a first call from which on it is the only one: what it imports is little beside that."""


def cpu_seconds(run: Callable[[], object], repeats: int = 1) -> float:
    started = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - started) / repeats


def medians(runs: list[Callable[[], object]], rounds: int) -> list[float]:
    """Median CPU seconds of several calls that take turns."""
    first = [cpu_seconds(run) for run in runs]  # the first time tools import, some for a second
    if max(first) < ONCE_S:
        first = [cpu_seconds(run) for run in runs]  # to see how often is often enough
    if max(first) > LONGEST_S:
        return first
    repeats = [max(1, int(0.02 / max(each, 1e-6))) for each in first]
    taken: list[list[float]] = [[] for _ in runs]
    began = time.process_time()
    for number in range(rounds):
        for run, times, repeat in zip(runs, taken, repeats, strict=True):
            times.append(cpu_seconds(run, repeat))
            gc.collect(0)
        if number + 1 >= FEWEST and time.process_time() - began > LONGEST_S:
            break
    return [statistics.median(times) for times in taken]


def recording(model: str, tool: str, rounds: int) -> Iterator[dict[str, Any]]:
    """A pass inside an open recording, and the whole call for a forward and for a training step."""
    load, recorder = WORKLOADS[model](), RECORDERS[tool]
    load.step()
    passes = {"forward": load.forward} | ({"step": load.step} if recorder.call is None else {})
    for name, run in passes.items():
        fresh = min(cpu_seconds(run), cpu_seconds(run))
        plain, whole = medians([run, recorder.whole(load, run)], rounds)
        plain = fresh if plain > SLOWED * fresh else plain
        yield {f"{name}": plain, f"whole {name}": whole}
        if recorder.opened is not None and recorder.several:
            yield {f"inside {name}": _inside(load, tool, run, rounds) * plain}


def _inside(load: Workload, tool: str, run: Callable[[], object], rounds: int) -> float:
    """CPU time of a pass inside, against one outside just before."""
    ratios, repeats = [], max(1, int(0.02 / cpu_seconds(run)))
    began = time.process_time()
    for number in range(rounds):
        plain = cpu_seconds(run, repeats)
        with RECORDERS[tool].opened(load):
            run()
            ratios.append(cpu_seconds(run, repeats) / plain)
        enough = FEWEST if ratios[0] < CLOSE else 2 if ratios[0] * repeats < 20 else 1
        if number + 1 >= enough and time.process_time() - began > LONGEST_S:
            break
    return statistics.median(ratios)


def _memory_report(model: torch.nn.Module) -> None:
    from pytorch_memlab import MemReporter

    with contextlib.redirect_stdout(io.StringIO()):
        MemReporter(model).report()


def _summary(model: torch.nn.Module) -> None:
    from torchinfo import summary

    summary(model, verbose=0)


def snapshot(size: str, tool: str, rounds: int) -> Iterator[dict[str, Any]]:
    """A look at a tree of modules beside its floor, which reads the same fields: a bare walk."""
    model = tree(int(size))
    looks = {
        "devwidget.snapshot": lambda: devwidget.snapshot(model),
        "torchinfo.summary": lambda: _summary(model),
        "pytorch_memlab": lambda: _memory_report(model),
    }
    gc.collect()
    if tool != "pytorch_memlab":  # it looks for tensors among what the collector knows
        gc.freeze()
    floor = functools.partial(bare_walk, model)
    least, look = medians([floor, looks[tool]], min(rounds, 5))
    yield {"floor": least, "look": look, "modules": sum(1 for _ in model.modules())}


def kept(model: str, _: str, rounds: int) -> Iterator[dict[str, Any]]:
    """Memory of a recording for each operator, and its trace in a file."""
    run = WORKLOADS[model]().forward
    with devwidget.record():
        run()  # what is kept once for all recordings, such as the names of operators
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    with devwidget.record() as recorded:
        run()
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    ops = sum(op.count for op in recorded.trace.ops)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        (save,) = medians([lambda: recorded.trace.save(file)], rounds)
        (load,) = medians([lambda: devwidget.load(file)], rounds)
        yield {"ops": ops, "bytes per op": held / ops, "file": file.stat().st_size, "save": save, "load": load}


def answer(name: str, model: str, rounds: int) -> Iterator[dict[str, Any]]:
    """What somebody waits for who has clicked, or asked."""
    yield ANSWERS[name](*filter(None, [model]), rounds=min(rounds, 5))


def importing(_: str, __: str, rounds: int) -> Iterator[dict[str, Any]]:
    """`import devwidget` after `import torch`, and its first recording, in processes of their own."""
    code = (
        "import time, torch; now = time.process_time; a = now(); import devwidget; b = now()\n"
        "with devwidget.record(): pass\nprint(b - a, now() - b)"
    )
    times = [subprocess.check_output([sys.executable, "-c", code], text=True).split() for _ in range(min(rounds, 5))]
    imports, first = zip(*times, strict=True)
    yield {"import": statistics.median(map(float, imports)), "first": statistics.median(map(float, first))}


def small_steps(_: str, __: str, rounds: int) -> Iterator[dict[str, Any]]:
    """A loop of steps of a millisecond or two: recorded, on a virtual GPU, and both, each against plain, in turns."""
    from simulator_cost import measure_small_steps  # imports much

    yield measure_small_steps(min(rounds, 5))


def growth(axis: str, size: str, rounds: int) -> Iterator[dict[str, Any]]:
    """CPU seconds of one whole call, and how many units it dealt with."""
    number = int(size)
    if axis == "operators":
        load = mlp(number)
        (taken,) = medians([RECORDERS["devwidget.record"].whole(load, load.forward)], rounds)
    elif axis == "steps":
        load = mlp()
        (taken,) = medians([RECORDERS["devwidget.record"].whole(load, lambda: [load.step() for _ in range(number)])], rounds)
    elif axis == "modules":
        model = tree(number)
        gc.freeze()
        (taken,) = medians([lambda: devwidget.snapshot(model)], rounds)
    else:
        with devwidget.simulate(gpus=number):
            layers = [torch.nn.Linear(8, 8).to(f"cuda:{gpu}") for gpu in range(number)]
            model = torch.nn.Sequential(*layers)
            for gpu, layer in enumerate(layers):
                layer.register_forward_pre_hook(lambda _, args, gpu=gpu: (args[0].to(f"cuda:{gpu}"),))
            (taken,) = medians([lambda: devwidget.trace(model, torch.randn(2, 8), verify=False)], rounds)
    yield {"seconds": taken, "units": number}


def watched(model: str, tool: str, rounds: int) -> Iterator[dict[str, Any]]:
    """CPU seconds of a training step, plain and watched, in turns."""
    from watch_cost import compare

    plain, watched = compare(WORKLOADS[model](), tool, rounds)
    yield {"plain": plain, "watched": watched}


def cells(model: str, _: str, rounds: int) -> Iterator[dict[str, Any]]:
    """CPU seconds of a cell, plain and with births that are watched by themselves, in turns."""
    from births_cells import compare

    plain, watched = compare(WORKLOADS[model](), min(rounds, 7))
    yield {"plain": plain, "watched": watched}


class Named(torch.nn.Module):
    """A path and a line that occur in no other text."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.projection(x)


def told(tool: str, _: str, rounds: int) -> Iterator[dict[str, Any]]:
    """Whether a tool's results name the module and the line of the user behind an operator."""
    recorder = RECORDERS[tool]
    words = recorder.words(recorder.result(Workload(Named(), (torch.randn(2, 8),))))
    yield {"module": "projection" in words, "line": Path(__file__).name in words}


KINDS = {
    each.__name__: each for each in (recording, told, snapshot, kept, answer, importing, small_steps, growth, watched, cells)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("subject")
    parser.add_argument("tool")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found: dict[str, Any] = {}
    for part in KINDS[asked.kind](asked.subject, asked.tool, 5 if asked.quick else 15):
        found |= part
        print(json.dumps(found), flush=True)  # what was found before time was up counts


if __name__ == "__main__":
    main()
