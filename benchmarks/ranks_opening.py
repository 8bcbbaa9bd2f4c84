"""How long the panel of a job takes to open: time in Python, bytes sent, and time in the page until every rank is painted,
by the clock and of the page's own thread, which other programs on the machine do not lengthen.

    python benchmarks/ranks_opening.py [--runs 3]

Opens recorded jobs of 256 and of 1,024 ranks in a page without Jupyter, medians of the runs.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from devwidget.extras.ranks.page import cluster_page, ranks_content
from devwidget.extras.ranks.records.cluster import Cluster
from tests.browser.chromium import Watched, launched
from tests.extras.ranks.records.made_up import cluster, reports

MESHES = ((("dp", 32), ("tp", 8)), (("pp", 4), ("dp", 32), ("tp", 8)))
PAINTED = """() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(
  document.querySelectorAll('.dw-rank').length ? performance.now() : -1), 0)))"""


def main() -> None:
    """Print one line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    print(f"{'ranks':>8}  {'Python ms':>9}  {'painted after ms':>16}  {'of its thread ms':>16}  {'sent kB':>8}")
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        for mesh in MESHES:
            job = cluster(reports(mesh, layers=64))
            found = zip(*(opened(job, browser, pathlib.Path(folder)) for _ in range(runs)), strict=True)
            took, painted, worked = map(statistics.median, found)
            size = len(json.dumps(ranks_content(job))) / 1000
            print(f"{len(job.ranks):>8}  {took:>9.0f}  {painted:>16.0f}  {worked:>16.0f}  {size:>8.0f}")


def opened(job: Cluster, browser: object, folder: pathlib.Path) -> tuple[float, float, float]:
    """Milliseconds to make the content, from the start of the page until it is painted, and of its thread in that time."""
    began = time.perf_counter()
    ranks_content(job)
    took = 1000 * (time.perf_counter() - began)
    path = folder / "job.html"
    path.write_text(cluster_page(job), encoding="utf-8")
    watched = Watched(browser, viewport={"width": 1600, "height": 900})  # type: ignore[arg-type]
    session = watched.context.new_cdp_session(watched.page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    watched.page.goto(path.as_uri(), wait_until="load")
    painted = watched.page.evaluate(PAINTED)
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    watched.close()
    return took, painted, 1000 * metrics["TaskDuration"]


if __name__ == "__main__":
    main()
