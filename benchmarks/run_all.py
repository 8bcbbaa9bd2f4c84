"""All figures beside the peers, one process for each, and docs/performance.md written of them.

    make bench                                        # or: python benchmarks/run_all.py [--quick] [--only devwidget.record]

Peers that are not installed (dependency group `bench`) are left out, and the page says so. What was measured is kept in
artifacts/bench.json: `--only` measures what it names, and leaves the rest as it was; `--only ""` writes the page alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from performance_page import page, this_machine
from recorders import RECORDERS
from workloads import WORKLOADS

HERE = Path(__file__).parent
KEPT, PAGE = HERE.parent / "artifacts" / "bench.json", HERE.parent / "docs" / "performance.md"
LIMIT_S = 900
GROWTH = {"operators": (50, 200, 800), "steps": (10, 100, 1000), "modules": (1000, 10000, 100000), "GPUs": (1, 2, 4, 8)}
LOOKS = ("devwidget.snapshot", "panel, nothing changed", "torchinfo.summary", "pytorch_memlab")


def figures() -> Iterator[tuple[str, str, str]]:
    """What figure.py is asked for: kind, subject, tool."""
    yield from (("recording", model, tool) for model in WORKLOADS for tool in RECORDERS)
    yield from (("snapshot", str(size), tool) for size in (1_000, 10_000, 100_000) for tool in LOOKS)
    yield from (("kept", model, "") for model in WORKLOADS)
    yield from (("trial", "", ""), ("importing", "", ""))
    yield from (("growth", axis, str(size)) for axis, sizes in GROWTH.items() for size in sizes)


def measured(asked: tuple[str, str, str], options: list[str]) -> dict[str, object]:
    """The answer of one process, or why there is none."""
    command = [sys.executable, str(HERE / "figure.py"), *asked, *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"longer than {LIMIT_S} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"error": (done.stderr.strip().splitlines() or ["no answer"])[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", help="words of the figures that are measured anew")
    asked = parser.parse_args()
    kept = json.loads(KEPT.read_text()) if asked.only is not None and KEPT.exists() else {"answers": {}}
    KEPT.parent.mkdir(exist_ok=True)
    for each in figures():
        name = "|".join(each)
        if asked.only is None or (asked.only and asked.only in name):
            kept["answers"][name] = measured(each, ["--quick"] if asked.quick else [])
            kept |= {"machine": this_machine(), "quick": asked.quick}
            KEPT.write_text(json.dumps(kept, indent=1))
            print(name, kept["answers"][name], flush=True)
    PAGE.write_text(page(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
