"""How soon the timeline answers a zoom: from the key to the frame after the one that paints it.

    python benchmarks/timeline_zoom.py [--modules 10000] [--events 100000] [--rounds 3]

A made-up step of as many modules, in blocks of ten on two GPUs, with as many operators, a hop between any two blocks and a
fault in each hundredth, in headless Chromium. Each round zooms in, moves about and zooms out again. A browser shows frames at
multiples of 16.7 ms: two of them are the least that this measure can give. `work` is what the page's main thread was busy with
meanwhile, in processor time, so that other programs do not count: code, layout, paint.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
from dataclasses import replace
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from devwidget.records.trace import Fault, ModuleEvent, Move, OpEvent, Trace
from tests.browser.chromium import launched
from tests.browser.esm import BarePage, large
from tests.views.builders import CPU, GPU0, GPU1

KEYS = "wwwwwddddwwaaaassssddwwwwssssssssss"
ZOOM = """async (key) => {
  const lanes = document.querySelector('.dw-lanes'), frame = () => new Promise(requestAnimationFrame);
  const began = await frame();
  lanes.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
  await frame();
  return (await frame()) - began;
}"""


def make_step(modules: int, events: int) -> Trace:
    """A step of so many modules and operators."""
    snapshot = large(modules)
    apart = events // modules
    ran, ops, moves, faults = [], [], [], []
    for at, module in enumerate(snapshot.modules):
        block = (at - 1) // 10
        lane, number = (GPU0, GPU1)[block * 20 // modules % 2], at * (apart + 2)
        length = 10 * (apart + 2) - 1 if module.depth == 1 else apart + 1
        stop = number + length if module.path else modules * (apart + 2)
        ran.append(ModuleEvent(module.path, module.class_name, (lane,), (lane,), 1, 0.0, number=number, stopped=stop))
        ops += [OpEvent("addmm", module.path, "forward", None, (lane,), lane, 1, number + 1 + n) for n in range(apart)]
        if module.depth == 1:
            crossing = Move(CPU, lane, 4096 * (1 + block % 9), (8, 8), "float32", module.path, "forward", None, "explicit")
            moves.append(replace(crossing, number=number))
        if module.depth == 1 and block % 100 == 0:
            faults.append(Fault(number + 2, "operands", "add", module.path, "forward", None, "x", target=lane))
    return Trace(modules=tuple(ran), ops=tuple(ops), moves=tuple(moves), faults=tuple(faults))


def find_busy(metrics: Any) -> float:
    """Milliseconds that the page's main thread has worked."""
    return next(
        1000 * each["value"] for each in metrics.send("Performance.getMetrics")["metrics"] if each["name"] == "TaskDuration"
    )


def main() -> None:
    """Print one line for each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    step = make_step(options.modules, options.events)
    print(f"{len(step.modules)} modules, {len(step.ops)} operators, {len(step.moves)} hops, {len(step.faults)} faults")
    with launched() as browser:
        shown = BarePage(browser, large(options.modules), step, viewport={"width": 1280, "height": 900})
        shown.page.get_by_role("tab", name="Trace").click()
        metrics = shown.page.context.new_cdp_session(shown.page)
        metrics.send("Performance.setTimeDomain", {"timeDomain": "threadTicks"})
        metrics.send("Performance.enable")
        for _ in range(options.rounds):
            seen: dict[str, list[float]] = {"answer": [], "work": []}
            for key in KEYS:
                before = find_busy(metrics)
                seen["answer"].append(shown.page.evaluate(ZOOM, key))
                seen["work"].append(find_busy(metrics) - before)
            for name, each in seen.items():
                print(f"{name:>6}: median {statistics.median(each):5.1f} ms, longest {max(each):5.1f} ms")
        shown.close()


if __name__ == "__main__":
    main()
