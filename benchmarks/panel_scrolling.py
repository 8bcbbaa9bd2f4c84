"""How smoothly the table moves: frames while it scrolls from end to end and while nothing moves, blank frames, and how long
one row's highlight takes.

    python benchmarks/panel_scrolling.py [--modules 160 10000 100000]

All rows are expanded, in headless Chromium. A frame is blank if the window of the table shows no row at its middle. The
highlight is timed in the page, from the request to the frame after the one that paints it.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from tests.browser.chromium import launched
from tests.browser.esm import BarePage, large

SCROLL = """async () => {
  const grid = document.querySelector('.dw-grid'), box = grid.getBoundingClientRect(), frames = [];
  const reach = grid.scrollHeight - grid.clientHeight, steps = 150;
  const frame = () => new Promise(requestAnimationFrame);
  let blank = 0, before = await frame();
  for (let step = 1; step <= steps; step++) {
    grid.scrollTop = (reach * step) / steps;
    const now = await frame();
    frames.push(now - before);
    before = now;
    const middle = document.elementFromPoint(box.left + 60, box.top + box.height / 2);
    if (!middle?.closest('.dw-body [role=row]')) blank++;
  }
  frames.sort((a, b) => a - b);
  return { median: frames[75], p95: frames[142], blank };
}"""
IDLE = """async () => {
  const frames = [], frame = () => new Promise(requestAnimationFrame);
  let before = await frame();
  for (let step = 0; step < 150; step++) {
    const now = await frame();
    frames.push(now - before);
    before = now;
  }
  return frames.sort((a, b) => a - b)[75];
}"""
HIGHLIGHT = """async () => {
  const times = [];
  for (let turn = 0; turn < 15; turn++) {
    const row = Math.floor((models.tree.get('table').rows * (turn + 1)) / 17);
    const began = performance.now();
    models.tree.set('reveal', { row, at: turn });
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    if (document.querySelector('.dw-body [aria-selected=true]')?.dataset.row !== String(row)) return -1;
    times.push(performance.now() - began);
  }
  return times.sort((a, b) => a - b)[7];
}"""


def measure(browser: Any, modules: int) -> tuple[dict[str, float], float, float]:
    """Frames of one scroll, the median frame of the idle page, and the median highlight, in milliseconds."""
    bare = BarePage(browser, large(modules))
    bare.page.get_by_label("Expand all rows").click()
    bare.page.evaluate(SCROLL)  # once for the compiler
    frames, idle, highlight = (bare.page.evaluate(script) for script in (SCROLL, IDLE, HIGHLIGHT))
    bare.close()
    return frames, idle, highlight


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=int, nargs="+", default=[160, 10_000, 100_000])
    sizes = parser.parse_args().modules
    print(f"{'modules':>8} {'frame median':>13} {'of an idle one':>15} {'95 %':>9} {'blank':>6} {'highlight':>10}")
    with launched() as browser:
        for size in sizes:
            frames, idle, highlight = measure(browser, size)
            ratio = frames["median"] / idle
            smooth = f"{frames['median']:10.1f} ms {ratio:13.2f} x {frames['p95']:6.1f} ms"
            print(f"{size:8,} {smooth} {frames['blank']:6} {highlight:7.1f} ms")


if __name__ == "__main__":
    main()
