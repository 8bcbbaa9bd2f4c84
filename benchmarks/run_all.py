"""All figures beside the peers, one process for each, and benchmarks/results/performance.md written of them.

    make bench                                        # or: python benchmarks/run_all.py [--quick] [--only devwidget.record]

Peers that are not installed (dependency group `bench`) are left out, and the page says so. What was measured is kept in
artifacts/bench.json, how long each figure took too: `--only` measures what it names, and leaves the rest as it was;
`--only ""` writes the page alone. A figure that takes too long keeps what it has, and those that have not begun after
`--minutes` are left out, the peers last.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from answer_cost import ANSWERS, CLICKED
from births_cells import MODELS as OF_CELLS
from performance_page import LATE, page, this_machine
from recorders import RECORDERS
from watch_cost import MODELS, TOOLS
from workloads import WORKLOADS

HERE = Path(__file__).parent
KEPT, PAGE = HERE.parent / "artifacts" / "bench.json", HERE / "results" / "performance.md"
LIMIT_S, USUAL_S = 120, 20
"""Seconds after which a figure ends with what it has told by then, and that one takes of which nothing is known."""
GROWTH = {"operators": (50, 200, 800), "steps": (10, 100, 1000), "modules": (1000, 10000, 100000), "GPUs": (1, 2, 4, 8)}
OURS = ("devwidget.record", "devwidget.trace", "bare modes and hooks", "bare, same facts")
LOOKS = ("devwidget.snapshot", "torchinfo.summary", "pytorch_memlab")


def figures() -> Iterator[tuple[str, str, str]]:
    """What figure.py is asked for: kind, subject, tool."""
    yield from (("recording", model, tool) for tool in OURS for model in WORKLOADS)
    yield from (("told", tool, "") for tool in RECORDERS)
    yield from (("snapshot", str(size), tool) for tool in LOOKS for size in (1_000, 10_000, 100_000))
    yield from (("kept", model, "") for model in WORKLOADS)
    yield from (("watched", model, tool) for tool in TOOLS for model in MODELS)
    yield from (("cells", model, "") for model in OF_CELLS)
    yield from (("answer", "clicks", model) for model in CLICKED)
    yield from (("answer", name, "") for name in ANSWERS if name != "clicks")
    yield from (("importing", "", ""), ("small_steps", "", ""))
    yield from (("growth", axis, str(size)) for axis, sizes in GROWTH.items() for size in sizes)
    yield from (("recording", model, tool) for model in WORKLOADS for tool in RECORDERS if tool not in OURS)


def measured(asked: tuple[str, str, str], options: list[str]) -> dict[str, object]:
    """The answer of one process, as far as it came, or why there is none."""
    command = [sys.executable, str(HERE / "figure.py"), *asked, *options]
    began = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
        out, words = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        out, words = late.stdout or b"", f"{LATE}{LIMIT_S} s".encode()
    reason = (words.decode(errors="replace").strip().splitlines() or ["no answer in time"])[-1]
    late = {"late": reason} if reason.startswith(LATE) else {}
    return (
        (_last_answer(out.decode(errors="replace")) or late or {"error": reason})
        | late
        | {"took": round(time.monotonic() - began, 1)}
    )


def _last_answer(text: str) -> dict[str, object]:
    """The last whole line of JSON: a process that was ended may have been at its next one."""
    for line in reversed([each for each in text.splitlines() if each.startswith("{")]):
        with contextlib.suppress(json.JSONDecodeError):
            return dict(json.loads(line))
    return {}


def expected_minutes(names: list[str], answers: dict[str, dict[str, float]]) -> float:
    """How long so many figures take, by what they took the last time."""
    return sum(answers.get(name, {}).get("took", USUAL_S) for name in names) / 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--minutes", type=float, default=45, help="after which no further figure begins")
    parser.add_argument("--only", help="words of the figures that are measured anew")
    asked = parser.parse_args()
    before = json.loads(KEPT.read_text()) if KEPT.exists() else {"answers": {}}
    kept = before if asked.only is not None else {"answers": {}}
    KEPT.parent.mkdir(exist_ok=True)
    chosen = {"|".join(each): each for each in figures()}
    if asked.only is not None:
        chosen = {name: each for name, each in chosen.items() if asked.only and asked.only in name}
    minutes = expected_minutes(list(chosen), before["answers"])
    print(f"{len(chosen)} figures, about {min(minutes, asked.minutes):.0f} minutes", flush=True)
    until = time.monotonic() + asked.minutes * 60
    for name, each in chosen.items():
        if time.monotonic() > until:
            print(f"left out, after {asked.minutes:g} minutes: {name}", flush=True)
            continue
        kept["answers"][name] = measured(each, ["--quick"] if asked.quick else [])
        kept |= {"machine": this_machine(), "quick": asked.quick}
        KEPT.write_text(json.dumps(kept, indent=1))
        print(name, kept["answers"][name], flush=True)
    PAGE.write_text(page(kept, ["|".join(each) for each in figures()]), encoding="utf-8")


if __name__ == "__main__":
    main()
