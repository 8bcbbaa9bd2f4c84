"""How smoothly the table moves: frames while it scrolls from end to end and while nothing moves, blank frames, and how long
one row's highlight takes.

    python benchmarks/panel_scrolling.py [--modules 160 10000 100000] [--rounds 5]

All rows are expanded, in headless Chromium, all pages open side by side. Each round visits every page, and on each one looks
at an idle page and at a scrolling one in turn; the first round is for the compiler and is not counted. A browser shows frames
at multiples of 16.7 ms, so that a frame of 17 ms of work counts as 33.3: `work` is what the page's main thread was busy with
for each frame. A frame is blank if the window of the table shows no row at its middle. The highlight is timed in the page,
from the request to the frame after the one that paints it.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from tests.browser.chromium import launched
from tests.browser.esm import BarePage, large

FRAMES = """async (moves) => {
  const grid = document.querySelector('.dw-grid'), box = grid.getBoundingClientRect(), frames = [];
  const reach = grid.scrollHeight - grid.clientHeight, steps = 100;
  const frame = () => new Promise(requestAnimationFrame);
  let blank = 0, before = await frame();
  for (let step = 1; step <= steps; step++) {
    if (moves) grid.scrollTop = (reach * step) / steps;
    const now = await frame();
    frames.push(now - before);
    before = now;
    const middle = document.elementFromPoint(box.left + 60, box.top + box.height / 2);
    if (!middle?.closest('.dw-body [role=row]')) blank++;
  }
  return { frames, blank };
}"""
HIGHLIGHT = """async () => {
  const times = [];
  for (let turn = 0; turn < 15; turn++) {
    const row = 1 + 10 * Math.floor((models.panel.get('table').rows * (turn + 1)) / 170);
    const began = performance.now();
    models.panel.set('chosen', { path: `block${(row - 1) / 10}`, at: turn });
    await new Promise((shown) => setTimeout(shown));
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    if (document.querySelector('.dw-body [aria-selected=true]')?.dataset.row !== String(row)) return -1;
    times.push(performance.now() - began);
  }
  return times.sort((a, b) => a - b)[7];
}"""


class Subject:
    """One page, and what was seen of it: frames in milliseconds, idle and scrolling."""

    def __init__(self, browser: Any, modules: int) -> None:
        self.modules = modules
        self.page = BarePage(browser, large(modules))
        self.page.page.get_by_label("Expand all rows").click()
        self.metrics = self.page.page.context.new_cdp_session(self.page.page)
        self.metrics.send("Performance.setTimeDomain", {"timeDomain": "threadTicks"})  # so that other programs do not count
        self.metrics.send("Performance.enable")
        self.frames: dict[bool, list[float]] = {False: [], True: []}
        self.work: dict[bool, list[float]] = {False: [], True: []}
        self.blank = 0

    def look(self, moves: bool, *, counts: bool) -> None:
        """Look at the page for a while, idle or scrolling."""
        self.page.page.bring_to_front()
        before = self._busy()
        seen = self.page.page.evaluate(FRAMES, moves)
        if counts:
            self.frames[moves] += seen["frames"]
            self.work[moves].append((self._busy() - before) / len(seen["frames"]))
            self.blank += seen["blank"]

    def _busy(self) -> float:
        """Milliseconds that the page's main thread has worked so far."""
        metrics = self.metrics.send("Performance.getMetrics")["metrics"]
        return 1000 * next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")

    def line(self) -> str:
        """Medians over all rounds."""
        idle, moving = (statistics.median(self.frames[moves]) for moves in (False, True))
        late = statistics.quantiles(self.frames[True], n=20)[-1]
        work = statistics.median(self.work[True])
        highlight = self.page.page.evaluate(HIGHLIGHT)
        return (
            f"{self.modules:8,} {moving:10.1f} ms {moving / idle:13.2f} x {late:6.1f} ms {work:6.1f} ms {self.blank:6}"
            f" {highlight:7.1f} ms"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=int, nargs="+", default=[160, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with launched() as browser:
        subjects = [Subject(browser, size) for size in asked.modules]
        for turn in range(asked.rounds + 1):
            for subject in subjects:
                for moves in (False, True):
                    subject.look(moves, counts=turn > 0)
        print(
            f"{'modules':>8} {'frame median':>13} {'of an idle one':>15} {'95 %':>9} {'work':>9} {'blank':>6} {'highlight':>10}"
        )
        for subject in subjects:
            print(subject.line())
            subject.page.close()


if __name__ == "__main__":
    main()
