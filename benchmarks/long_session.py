"""Memory over a long session: many recorded steps in one recording, and many traces through an open panel.

    python benchmarks/long_session.py [--steps 10000] [--traces 1000] [--looks 10]

Prints resident memory and what Python holds after each tenth. Both are flat after the first: events of one place are folded,
births of dead tensors are forgotten, and a panel keeps its last trace alone.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import pathlib
import time
import tracemalloc
from collections.abc import Callable

import torch
from workloads import mlp

import devwidget


def resident_mebibytes() -> float:
    """Of this process, now."""
    status = pathlib.Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def curve(what: str, run: Callable[[], object], times: int, looks: int) -> None:
    """Run something often, and print how much memory is held on the way."""
    run()
    gc.collect()
    tracemalloc.start()
    print(f"{what:>16} {'resident':>12} {'held since the first':>22} {'CPU for each':>14}", flush=True)
    for look in range(1, looks + 1):
        began = time.process_time()
        for _ in range(times // looks):
            run()
        each = (time.process_time() - began) / (times // looks) * 1e3
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] / 1024
        print(f"{look * (times // looks):>16,} {resident_mebibytes():>8.1f} MiB {held:>18.1f} KiB {each:>11.2f} ms", flush=True)
    tracemalloc.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--traces", type=int, default=1_000)
    parser.add_argument("--looks", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    load = mlp()
    with devwidget.record():
        curve("recorded steps", load.step, options.steps, options.looks)
    with contextlib.redirect_stdout(io.StringIO()):
        panel = devwidget.show(load.model, load.batch[0])
    curve("traces in a panel", panel.run_trace, options.traces, options.looks)
    panel.close()


if __name__ == "__main__":
    main()
