"""Cost of a snapshot beside a bare walk that reads the same fields of the same tensors, in the same run.

python benchmarks/snapshot_cost.py [--sizes 1000 10000 100000] [--repeat 5]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import devwidget
from devwidget.capture.undo import paused_gc


class Leaf(nn.Module):
    """One parameter, one buffer and a setting."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(4, 4))
        self.register_buffer("scale", torch.empty(4))
        self.width = 4


def tree(modules: int) -> nn.Module:
    """A tree of about that many modules: a root, groups of 50 leaves."""
    groups = max(1, modules // 51)
    return nn.Sequential(*(nn.Sequential(*(Leaf() for _ in range(50))) for _ in range(groups)))


def bare_walk(model: nn.Module) -> list[object]:
    """The same facts as plain tuples: no records, no names of devices, no ties, no containers."""
    facts: list[object] = []
    waiting: list[tuple[str, nn.Module]] = [("", model)]
    while waiting:
        path, module = waiting.pop()
        for role, group in (("parameter", module._parameters), ("buffer", module._buffers)):
            facts.extend(_fields(path, name, role, tensor) for name, tensor in group.items() if tensor is not None)
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                facts.append(_fields(path, name, "attribute", value))
        facts.append((path, type(module).__name__, module.training))
        waiting += [(f"{path}.{name}", child) for name, child in module._modules.items() if child is not None]
    return facts


def _fields(path: str, name: str, role: str, tensor: torch.Tensor) -> tuple[object, ...]:
    storage = tensor.untyped_storage()
    grad = tensor.grad if tensor.is_leaf else None
    size = (tensor.nbytes, storage._cdata, storage.nbytes())
    kept = (tensor.requires_grad, 0 if grad is None else grad.nbytes, None if grad is None else grad.device)
    return (path, name, role, tuple(tensor.shape), tensor.dtype, tensor.device, *size, *kept)


def milliseconds(call: Callable[[], object], repeat: int) -> float:
    """Median processor time: others may be at work on this machine."""
    times = []
    for _ in range(repeat):
        started = time.process_time()
        result = call()
        times.append((time.process_time() - started) * 1e3)
        del result
    return statistics.median(times)


def measure(size: int, repeat: int) -> tuple[int, float, float]:
    """Modules, and milliseconds of the walk and of the snapshot, which an open panel takes after each cell."""
    model = tree(size)
    bare_walk(model), devwidget.snapshot(model)
    with paused_gc():  # it would walk through what the others hold
        return (
            sum(1 for _ in model.modules()),
            milliseconds(lambda: bare_walk(model), repeat),
            milliseconds(lambda: devwidget.snapshot(model), repeat),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'modules':>8} {'bare walk':>12} {'snapshot':>12} {'ratio':>6} {'us/module':>10}")
    for size in options.sizes:
        modules, walk, snapshot = measure(size, options.repeat)
        cost = f"{snapshot:>9.1f} ms {snapshot / walk:>6.2f} {snapshot * 1e3 / modules:>10.1f}"
        print(f"{modules:>8} {walk:>9.1f} ms {cost}")


if __name__ == "__main__":
    main()
