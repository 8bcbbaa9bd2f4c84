"""How often `place` fits, against accelerate's proposals and every assignment of blocks, for small transformers.

The least memory is that of the best of all assignments of the blocks to GPUs where there are few blocks, otherwise of
all splits in the order in which they run, and of accelerate's proposals; each is run. All are then given 1 to 1.5 times
of it. What a device map takes does not depend on the memory, so each is run once.

    python benchmarks/placement_quality.py --minutes 5     # continues the last run, and writes results/placement.md
    python benchmarks/placement_quality.py gpt2 llama      # these alone
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import accelerate
import torch
from accelerate.utils import get_balanced_memory
from placement_page import write_page

import devwidget
from devwidget.capture.step.batch import Arguments, make_arguments
from devwidget.extras.plan import layout
from devwidget.extras.plan.layout import assign_places, group_tied_blocks
from devwidget.extras.plan.layout_blocks import ModelBlock, Need, find_block_paths, measure_blocks
from devwidget.extras.plan.make_plan import ask_for_loop
from devwidget.extras.plan.placement import retry_with_lengths
from devwidget.extras.plan.records.answers import Layout
from devwidget.extras.plan.records.plan import DevicePlan, Plan
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError
from tests import zoo
from tests.extras.plan.measured import total

FACTORS = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5)
BELOW = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Accelerate may divide what is a block here, and then need less."""
MOST_GROUPS = 6
"""Of tied blocks, of which every assignment is ever run."""
MOST_BLOCKS = 40
GPUS = 2
LOOP = {"loop": None, "accumulate": 1, "autocast": False, "grad_scaler": False, "zero_grad": None, "checkpointing": False}
KEPT = Path("artifacts/placement")
Places = dict[str, Any]
Key = tuple[Any, ...]


@dataclass
class Runs:
    """The step of one model, each device map run once.

    Attributes:
        model, batch, asked: of the step.
        peaks: of each GPU, by device map; None if it does not run on GPUs alone.
        few: groups of blocks of which every assignment is run.
    """

    model: Any
    batch: Any
    asked: dict[str, Any]
    peaks: dict[Key, list[int] | None] = field(default_factory=dict)
    few: int = 5
    _measured: dict[tuple[str, ...], Need] = field(default_factory=dict)

    def need(self, places: Places) -> int | None:
        """What the fullest GPU takes with a device map."""
        key = key_of(places)
        if key not in self.peaks:
            self.peaks[key] = None if set(map(str, places.values())) & {"cpu", "disk"} else self._run(places)
        peaks = self.peaks[key]
        return None if peaks is None else max(peaks)

    def _run(self, places: Places) -> list[int] | None:
        try:
            plan = devwidget.plan(self.model, self.batch, gpus=GPUS, memory="1TiB", placement=places, **self.asked)
        except (DevwidgetError, ValueError):
            return None
        return [device.peak for device in plan.devices]

    def layout(self, memory: int) -> Layout | None:
        """What `place` says; it finds here what was run before."""
        layout.plan_step, layout.measure_blocks = self._plan_step, lambda *asked: self.measured(asked[3])  # type: ignore[assignment]
        try:
            return layout.propose_layout(self.model, *self._step(memory), (memory,) * GPUS)
        except DevwidgetError:
            return None

    def _plan_step(self, model: Any, inputs: Any, asked: dict[str, Any], changed: Any) -> Plan:
        """In place of that of `place`: what was run, held against another memory."""
        places: Places = asked["placement"]
        if asked["placement"] == "auto":
            places = proposed(self.model, asked["memory"], balanced=True)
        self.need(places)
        if (peaks := self.peaks[key_of(places)]) is None:
            raise DevwidgetError("it does not run")
        devices = (DevicePlan(DeviceId("cuda", index), asked["memory"], peak) for index, peak in enumerate(peaks))
        device_map = tuple((path, f"cuda:{place}") for path, place in places.items())
        return Plan(type(model).__name__, "device map", (), tuple(devices), device_map)

    def measured(self, paths: tuple[str, ...]) -> Need:
        """What the blocks need, measured once."""
        if paths not in self._measured:
            inputs, asked = self._step(0)
            self._measured[paths] = retry_with_lengths(functools.partial(measure_blocks, self.model, inputs, asked, paths))
        return self._measured[paths]

    def _step(self, memory: int) -> tuple[Arguments, dict[str, Any]]:
        asked: dict[str, Any] = {"gpus": GPUS, "memory": memory, "card": None, "loss_fn": None, "optimizer": None, **self.asked}
        asked |= ask_for_loop(asked["optimizer"], asked["loss_fn"], None, LOOP)
        return make_arguments(self.model, self.batch, target=None, has_loss=bool(self.asked)), asked


def key_of(places: Places) -> Key:
    """The same for the same places and the same first GPU, which the batch goes to."""
    return next(iter(places.values())), *sorted(places.items())


def assignments(blocks: Sequence[ModelBlock], few: int) -> Iterator[Places]:
    """Every assignment of few groups of tied blocks, the first on the first GPU; every split of more as they run."""
    groups = group_tied_blocks(blocks)
    every: Iterator[tuple[int, ...]] = itertools.product(range(GPUS), repeat=len(groups) - 1)
    if len(groups) > few:
        every = (tuple(int(index >= cut) for index in range(1, len(groups))) for cut in range(1, len(groups) + 1))
    for rest in every:
        yield {block.path: gpu for block, gpu in zip(blocks, assign_places(groups, (0, *rest)), strict=True)}


def proposed(model: Any, memory: int, balanced: bool) -> Places:
    """What accelerate says; balanced as for `device_map="auto"`."""
    whole, room = list(getattr(model, "_no_split_modules", None) or []), dict.fromkeys(range(GPUS), memory)
    try:
        with devwidget.simulate(GPUS, "1TiB", compute=False):  # it asks which GPUs there are
            room = get_balanced_memory(model, room, no_split_module_classes=whole) if balanced else room
            return dict(accelerate.infer_auto_device_map(model, room, no_split_module_classes=whole))
    except (IndexError, KeyError, TypeError, ValueError):
        return {"": "disk"}


def hops(layout: Layout, places: Places) -> int:
    """Changes of the GPU along the blocks as they run, and back."""
    devices = [_device(block.path, places) for block in layout.blocks if block.passed]
    return sum(a != b for a, b in itertools.pairwise([*devices, *devices[:1]]))


def _device(path: str, places: Places) -> Any:
    """Of a block; of the first part where it is divided."""
    above = (places[key] for key in places if not key or f"{path}.".startswith(f"{key}."))
    return next(above, next((places[key] for key in places if key.startswith(f"{path}.")), 0))


def compare(runs: Runs) -> dict[str, Any]:
    """One step, at every memory."""
    for paths in dict.fromkeys(tuple(find_block_paths(runs.model, finest)) for finest in (True, False)):
        if len(paths) > MOST_BLOCKS:
            return {"left_out": f"{len(paths)} blocks"}
        try:
            blocks = runs.measured(paths).blocks
        except DevwidgetError as error:
            return {"left_out": error.what}
        few = MOST_GROUPS if _all_run(blocks, runs) else runs.few
        if tried := [places for places in assignments(blocks, few) if runs.need(places) is not None]:
            break
    else:
        return {"left_out": "no plan of it runs"}
    least = min(runs.need(places) or 0 for places in tried)
    for below, balanced in itertools.product(BELOW, (True, False)):
        least = min(least, runs.need(proposed(runs.model, int(least * below), balanced)) or least)
    cases = [_case(runs, tried, factor, int(least * factor)) for factor in FACTORS]
    return {"blocks": len(paths), "every": _all_run(blocks, runs), "least": least, "cases": cases}


def _all_run(blocks: Sequence[ModelBlock], runs: Runs) -> bool:
    is_few = len(group_tied_blocks(blocks)) <= MOST_GROUPS
    return is_few and all(key_of(each) in runs.peaks for each in assignments(blocks, MOST_GROUPS))


def _case(runs: Runs, tried: list[Places], factor: float, memory: int) -> dict[str, Any]:
    layout = runs.layout(memory)
    found: dict[str, Any] = {"factor": factor, "place": layout.hops if layout is not None and layout.fits else None}
    if layout is None:
        return {**found, "infer": None, "auto": None, "any": None}
    for name, balanced in (("infer", False), ("auto", True)):
        theirs = proposed(runs.model, memory, balanced)
        need = runs.need(theirs)
        found[name] = hops(layout, theirs) if need is not None and need <= memory else None
    found["any"] = min((hops(layout, places) for places in tried if (runs.need(places) or 0) <= memory), default=None)
    return found


def steps(names: set[str]) -> Iterator[tuple[str, Runs]]:
    """Each model in training and in inference."""
    for path, model, _, batch in zoo.iter_core(names=names, training=True):
        for asked in ({"loss_fn": total, "optimizer": torch.optim.AdamW}, {}):
            yield f"{path.rpartition('.')[2]}, {'training' if asked else 'inference'}", Runs(model, batch, asked)


def main() -> None:
    """Go on for some minutes, and say what each step came to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--few", type=int, default=5, help="groups of tied blocks of which every assignment is run")
    parser.add_argument("--again", action="store_true", help="ask `place` again, with what was run before")
    given = parser.parse_args()
    ends, done = time.monotonic() + 60 * given.minutes, {} if given.again else dict(_known())
    wanted = {name for name in given.models or zoo.CORE if not {f"{name}, training", f"{name}, inference"} <= done.keys()}
    for step, runs in steps(wanted) if wanted else ():
        if time.monotonic() > ends:
            print("there is more to do")
            break
        runs.few = given.few
        if step not in done:
            done[step] = _told(step, runs)
    page = None if given.models else Path(__file__).parent / "results" / "placement.md"
    write_page(list(done.values()), 2 * len(zoo.CORE), page)


def _told(step: str, runs: Runs) -> dict[str, Any]:
    """What one step comes to, kept with what was run for it."""
    kept = KEPT / f"{step}.json"
    if kept.exists():
        runs.peaks |= {_tuples(key): peaks for key, peaks in json.loads(kept.read_text())["runs"]}
    with warnings.catch_warnings(action="ignore"), torch.set_grad_enabled(bool(runs.asked)):
        found = {"step": step, **compare(runs)}
    print(found, flush=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"found": found, "runs": list(runs.peaks.items())}))
    return found


def _tuples(key: list[Any]) -> Key:
    return key[0], *(tuple(pair) for pair in key[1:])


def _known() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(KEPT.glob("*.json")):
        yield path.stem, json.loads(path.read_text())["found"]


if __name__ == "__main__":
    main()
