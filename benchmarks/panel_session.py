"""Memory of a page over a long session: many traces drawn in one open panel, in headless Chromium.

    python benchmarks/panel_session.py [--traces 1000] [--looks 10]

A real panel traces a real model, and what it sends is handed to its ES modules in a bare page. Prints, after each tenth and a
collection of garbage, what JavaScript holds, how many nodes and listeners the page has, and what Python holds since the first.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import pathlib
import sys
import tracemalloc
from typing import Any

import torch
from workloads import mlp

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import devwidget
from tests.browser.chromium import launched
from tests.browser.esm import BarePage

HELD = ("JSHeapUsedSize", "Nodes", "JSEventListeners")


class Session:
    """A panel in Python and its page."""

    def __init__(self, browser: Any) -> None:
        load = self.load = mlp()  # the panel holds its model weakly
        with contextlib.redirect_stdout(io.StringIO()):
            self.panel = devwidget.show(load.model, load.batch[0])
        self.bare = BarePage(browser, self.panel.snapshot, self.panel.run_trace())
        self.metrics = self.bare.page.context.new_cdp_session(self.bare.page)
        self.metrics.send("Performance.enable")
        view = self.panel.view
        names = [
            name for name in view.trait_names(sync=True) if not name.startswith("_") and name not in ("layout", "tabbable")
        ]
        view.observe(lambda change: self.bare.update("panel", change.name, change.new), names)

    def trace(self) -> None:
        """One trace, drawn."""
        self.panel.run_trace()

    def held(self) -> list[float]:
        """What the page holds now."""
        self.bare.page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        self.metrics.send("HeapProfiler.collectGarbage")
        found = {each["name"]: each["value"] for each in self.metrics.send("Performance.getMetrics")["metrics"]}
        return [found[name] for name in HELD]

    def close(self) -> None:
        """Close the page, which fails if anything went wrong in it."""
        self.bare.close()
        self.panel.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, default=1_000)
    parser.add_argument("--looks", type=int, default=10)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with launched() as browser:
        session = Session(browser)
        session.trace()
        gc.collect()
        tracemalloc.start()
        print(f"{'traces':>8} {'JavaScript':>14} {'nodes':>8} {'listeners':>10} {'Python since the first':>24}", flush=True)
        for look in range(1, asked.looks + 1):
            for _ in range(asked.traces // asked.looks):
                session.trace()
            heap, nodes, listeners = session.held()
            gc.collect()
            python = tracemalloc.get_traced_memory()[0] / 1024
            done = look * (asked.traces // asked.looks)
            print(f"{done:>8,} {heap / 1024:>10.0f} KiB {nodes:>8.0f} {listeners:>10.0f} {python:>20.1f} KiB", flush=True)
        tracemalloc.stop()
        session.close()


if __name__ == "__main__":
    main()
