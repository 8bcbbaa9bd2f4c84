"""How often `place` fits, against accelerate's `infer_auto_device_map` and every split in order, for small transformers.

The least memory is that of the best of all splits in order, each run; both are then given 1.1 to 1.5 times of it.

    python benchmarks/placement_quality.py gpt2 llama bert     # all without names
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import accelerate
import torch

import devwidget
from devwidget.planning.blocks import paths_of_blocks
from devwidget.records.errors import DevwidgetError
from tests import zoo
from tests.measured import total

FACTORS = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5)
MOST_BLOCKS = 14
GPUS = 2


def taken(model: Any, batch: Any, places: dict[str, Any], asked: dict[str, Any]) -> int | None:
    """The most that a GPU takes with a device map; None if it does not run on GPUs alone."""
    if set(map(str, places.values())) & {"cpu", "disk"}:
        return None
    try:
        plan = devwidget.plan(model, batch, gpus=GPUS, memory="1TiB", placement=places, **asked)
    except (DevwidgetError, ValueError):
        return None
    return max(device.peak for device in plan.devices)


def splits(paths: list[str]) -> Iterator[dict[str, int]]:
    """Every split in order."""
    for cut in itertools.product(range(1, len(paths) + 1), repeat=GPUS - 1):
        if list(cut) == sorted(cut):
            yield {path: sum(index >= each for each in cut) for index, path in enumerate(paths)}


def proposed(model: Any, memory: int) -> dict[str, Any]:
    """What accelerate says."""
    whole = list(getattr(model, "_no_split_modules", None) or [])
    try:
        with devwidget.simulate(GPUS, "1TiB", compute=False):  # it asks which GPUs there are
            return dict(_inferred(model, memory, whole))
    except (IndexError, KeyError, TypeError, ValueError):
        return {"": "disk"}


def _inferred(model: Any, memory: int, whole: list[str]) -> dict[str, Any]:
    return accelerate.infer_auto_device_map(model, dict.fromkeys(range(GPUS), memory), no_split_module_classes=whole)


def hops(paths: list[str], places: dict[str, Any]) -> int:
    """Changes of the GPU along the blocks, and back."""
    devices = [next((places[key] for key in places if not key or f"{path}.".startswith(f"{key}.")), 0) for path in paths]
    return sum(a != b for a, b in itertools.pairwise([*devices, devices[0]]))


def compare(name: str, model: Any, batch: Any, asked: dict[str, Any], found: Counter[str]) -> None:
    """One model, at every memory."""
    paths = paths_of_blocks(model)
    if not 2 <= len(paths) <= MOST_BLOCKS:
        return
    needs = [need for places in splits(paths) if (need := taken(model, batch, places, asked)) is not None]
    if not needs:
        return
    for factor in FACTORS:
        memory = int(min(needs) * factor)
        layout = devwidget.place(model, batch, gpus=GPUS, memory=memory, **asked)
        theirs = proposed(model, memory)
        need = taken(model, batch, theirs, asked)
        fits = need is not None and need <= memory
        where = "at the least memory" if factor == 1 else "at 1.1 to 1.5 times"
        found[f"cases {where}"] += 1
        found[f"place fits {where}"] += layout.fits
        found[f"accelerate fits {where}"] += fits
        found["place has more hops, where both fit"] += fits and layout.fits and layout.hops > hops(paths, theirs)
        if not layout.fits:
            print(f"{name} at {factor}: place does not fit, {layout.rejected[-1:]}")


def main() -> None:
    """Print how often each fits."""
    names, found = set(sys.argv[1:]) or None, Counter[str]()
    for path, model, _, batch in zoo.iter_core(names=names, training=True):
        for asked in ({"loss_fn": total, "optimizer": torch.optim.AdamW}, {}):
            with warnings.catch_warnings(action="ignore"), torch.set_grad_enabled(bool(asked)):
                try:
                    compare(path, model, batch, asked, found)
                except DevwidgetError as error:
                    print(f"{path}: {error.what}")
    for what, count in found.items():
        print(f"{what}: {count}")


if __name__ == "__main__":
    main()
