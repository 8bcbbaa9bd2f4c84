"""How often `place` fits, against accelerate's `infer_auto_device_map` and every split in order, for small transformers.

The least memory is that of the best of all splits in order, each run; both are then given 1.1 to 1.5 times of it. What a
device map takes does not depend on the memory, so each is run once.

    python benchmarks/placement_quality.py gpt2 llama bert     # all without names
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import accelerate
import torch

import devwidget
from devwidget.capture.step.batch import arguments
from devwidget.planning.layouts import placing
from devwidget.planning.layouts.blocks import paths_of_blocks
from devwidget.records.answers.layout import Layout
from devwidget.records.errors import DevwidgetError
from devwidget.records.plan import Plan
from tests import zoo
from tests.measured import total

FACTORS = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5)
MOST_BLOCKS = 40
GPUS = 2


@dataclass
class Runs:
    """The step of one model, each device map run once.

    Attributes:
        model, batch, asked: of the step.
        plans: by device map.
    """

    model: Any
    batch: Any
    asked: dict[str, Any]
    plans: dict[tuple[tuple[str, Any], ...], Plan | None] = field(default_factory=dict)

    def plan(self, places: dict[str, Any]) -> Plan | None:
        """With a device map; None if it does not run on GPUs alone."""
        key = tuple(places.items())
        if key not in self.plans:
            self.plans[key] = None if set(map(str, places.values())) & {"cpu", "disk"} else self._run(places)
        return self.plans[key]

    def _run(self, places: dict[str, Any]) -> Plan | None:
        try:
            return devwidget.plan(self.model, self.batch, gpus=GPUS, memory="1TiB", placement=places, **self.asked)
        except (DevwidgetError, ValueError):
            return None

    def taken(self, places: dict[str, Any]) -> int | None:
        """The most that a GPU takes with a device map."""
        plan = self.plan(places)
        return None if plan is None else max(device.peak for device in plan.devices)

    def plan_of(self, model: Any, inputs: Any, asked: dict[str, Any], changed: Any) -> Plan:
        """In place of that of `place`: the same plan, held against another memory."""
        plan = self.plan(asked["placement"])
        if plan is None:
            raise DevwidgetError("it does not run")
        return replace(plan, devices=tuple(replace(device, capacity=asked["memory"]) for device in plan.devices))

    def layouts(self) -> Iterator[tuple[float, int, Layout]]:
        """What `place` says, from the least memory of all splits on: times of it, that memory, the layout."""
        needs = [need for places in splits(paths_of_blocks(self.model)) if (need := self.taken(places)) is not None]
        if not needs:
            return
        inputs = arguments(self.model, self.batch, target=None, has_loss=bool(self.asked))
        asked = {"gpus": GPUS, "card": None, "loss_fn": None, "optimizer": None, **self.asked}
        need = placing.measure(self.model, inputs, asked, False)
        placing.plan_of = self.plan_of  # type: ignore[assignment]
        for factor in FACTORS:
            memory = int(min(needs) * factor)
            found = placing.Proposals(self.model, inputs, {**asked, "memory": memory}, need, (memory,) * GPUS).search()
            yield factor, memory, found


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
    paths, runs, before = paths_of_blocks(model), Runs(model, batch, asked), Counter(found)
    if not 2 <= len(paths) <= MOST_BLOCKS:
        return
    for factor, memory, layout in runs.layouts():
        theirs = proposed(model, memory)
        need = runs.taken(theirs)
        fits = need is not None and need <= memory
        where = "at the least memory" if factor == 1 else "at 1.1 to 1.5 times"
        found[f"cases {where}"] += 1
        found[f"place fits {where}"] += layout.fits
        found[f"accelerate fits {where}"] += fits
        found["both fit"] += fits and layout.fits
        found["place has more hops, where both fit"] += fits and layout.fits and layout.hops > hops(paths, theirs)
        found["accelerate has more hops, where both fit"] += fits and layout.fits and layout.hops < hops(paths, theirs)
        if not layout.fits:
            print(f"{name}, {_kind(asked)}, {factor} times the least memory: place does not fit, {layout.rejected[-1:]}")
    if found != before:
        found["steps"] += 1
        print(f"{name}, {_kind(asked)}: {len(paths)} blocks, {dict(found - before)}", flush=True)


def _kind(asked: dict[str, Any]) -> str:
    return "training" if asked else "inference"


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
