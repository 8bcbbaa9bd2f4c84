"""What `trace(restore=True)` adds for keeping and putting back: processor time and resident memory, by what the step does.

The model is 1 GiB of linear layers; memory is the growth of the peak over the same step with `restore=False`, each in a
process of its own. `saved` is what was copied of storages, `step writes` what the step changes of what was there before it.

python benchmarks/restore_cost.py [--mebibytes 1024]
"""

from __future__ import annotations

import argparse
import multiprocessing
import pathlib
import time
from typing import Any

import torch
from torch import nn

import devwidget
from devwidget.capture.restore import keep_state

WIDTH = 2048


def model_of(mebibytes: int) -> nn.Sequential:
    """Linear layers of 16 MiB each."""
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(mebibytes // 16)))


def arguments_of(step: str, model: nn.Module) -> dict[str, Any]:
    """Arguments of `trace`."""
    if step == "forward":
        return {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return {"loss_fn": torch.sum, "optimizer": optimizer}


def peak_mebibytes() -> float:
    """Of this process. `getrusage` would count the peak of the process that started it."""
    status = pathlib.Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def growth(step: str, restore: bool, mebibytes: int, results: Any) -> None:
    """Growth of the peak of this process, in MiB."""
    torch.set_num_threads(1)
    model = model_of(mebibytes)
    more = arguments_of(step, model)
    devwidget.trace(nn.Linear(4, 4), torch.rand(1, 4), loss_fn=torch.sum)  # imports, and the first buffers of torch
    before = peak_mebibytes()
    devwidget.trace(model, torch.rand(1, WIDTH), restore=restore, **more)
    results.put(peak_mebibytes() - before)


def in_a_process(*job: Any) -> float:
    """The peak of a process never falls, so that each measurement needs its own."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=growth, args=(*job, results))
    process.start()
    found: float = results.get()
    process.join()
    return found


def keeping_milliseconds(model: nn.Module, repeat: int = 7) -> tuple[float, float]:
    """Least processor time of entering and of leaving, with nothing done in between."""
    entering, leaving = [], []
    for _ in range(repeat):
        block, started = keep_state(model), time.process_time()
        block.__enter__()
        middle = time.process_time()
        block.__exit__(None, None, None)
        entering.append((middle - started) * 1e3)
        leaving.append((time.process_time() - middle) * 1e3)
    return min(entering), min(leaving)


def saved_mebibytes(step: str, model: nn.Module) -> float:
    """What is copied of storages in one step."""
    more = arguments_of(step, model)
    optimizer = more.get("optimizer")
    with keep_state(model, optimizer) as kept:
        loss = model(torch.rand(1, WIDTH)).sum()
        if optimizer is not None:
            loss.backward()
            optimizer.step()
        return sum(map(len, kept._storages._copies.values())) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=1024)
    size = parser.parse_args().mebibytes
    torch.set_num_threads(1)
    model = model_of(size)
    entering, leaving = keeping_milliseconds(model)
    print(f"{size} MiB of parameters: keeping {entering:.1f} ms, putting back {leaving:.1f} ms")
    print(f"{'step':>16} {'saved':>10} {'step writes':>12} {'peak grows by':>14}")
    for step, writes in (("forward", 0.0), ("with optimizer", float(size))):
        saved = saved_mebibytes(step, model)
        grown = in_a_process(step, True, size) - in_a_process(step, False, size)
        print(f"{step:>16} {saved:>6.1f} MiB {writes:>8.1f} MiB {grown:>10.1f} MiB")


if __name__ == "__main__":
    main()
