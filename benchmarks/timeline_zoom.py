"""How soon the timeline answers a zoom: from the key that is pressed to the picture on the screen, as Chromium itself times it.

    python benchmarks/timeline_zoom.py [--modules 10000] [--events 100000] [--rounds 3]

A made-up step of as many modules, in blocks of ten on two GPUs, with as many operators, a hop between any two blocks and a
fault in each hundredth, in headless Chromium. Each round zooms in, moves about and zooms out again. Chromium rounds what it
times (`PerformanceEventTiming.duration`) to 8 ms, and says nothing below 16, which counts as 16. `work` is what the page's main
thread was busy with meanwhile, in processor time, so that other programs do not count: code, layout, paint. `drawn` are the
elements of the drawing.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from tests.browser.chromium import launched
from tests.browser.esm import BarePage, large, large_step

KEYS = "wwwwwddddwwaaaassssddwwwwssssssssss"
WATCH = """() => {
  window.answers = [];
  const note = (list) => list.getEntriesByName('keydown').forEach(({ duration }) => answers.push(duration));
  new PerformanceObserver(note).observe({ type: 'event', durationThreshold: 16 });
}"""
ANSWERED = """async () => {
  for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
  await new Promise((go) => setTimeout(go, 20));
  return answers.splice(0);
}"""
SHORTEST = 16.0


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
    step = large_step(options.modules, options.events)
    print(f"{len(step.modules)} modules, {len(step.ops)} operators, {len(step.moves)} hops, {len(step.faults)} faults")
    with launched() as browser:
        shown = BarePage(browser, large(options.modules), step, viewport={"width": 1280, "height": 900})
        shown.page.get_by_role("tab", name="Trace").click()
        metrics = shown.page.context.new_cdp_session(shown.page)
        metrics.send("Performance.setTimeDomain", {"timeDomain": "threadTicks"})
        metrics.send("Performance.enable")
        shown.page.evaluate(WATCH)
        shown.page.locator(".dw-lanes").focus()
        for _ in range(options.rounds):
            seen: dict[str, list[float]] = {"answer": [], "work": [], "drawn": []}
            for key in KEYS:
                before = find_busy(metrics)
                shown.page.keyboard.press(key)
                seen["answer"].append(max(shown.page.evaluate(ANSWERED), default=SHORTEST))
                seen["work"].append(find_busy(metrics) - before)
                seen["drawn"].append(shown.page.locator(".dw-lanes *").count())
            for name, unit in (("answer", " ms"), ("work", " ms"), ("drawn", "")):
                print(f"{name:>6}: median {statistics.median(seen[name]):5.1f}{unit}, most {max(seen[name]):5.1f}{unit}")
        shown.close()


if __name__ == "__main__":
    main()
