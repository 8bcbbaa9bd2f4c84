"""benchmarks/results/placement.md: how often layouts fit, and the cases in which they do not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

Case = dict[str, Any]
HEAD = """# How often layouts fit

`python benchmarks/placement_quality.py --minutes 5` continues the run and writes this page. Small transformers, in training
and in inference, on 2 GPUs with 1 to 1.5 times the least memory with which any layout that was run fits: every assignment of
few blocks, every split of more, and the proposals of accelerate. "Balanced" is what `device_map="auto"` does.
"""


def write_page(steps: list[dict[str, Any]], wanted: int, path: Path | None) -> None:
    """Print the page and write it to `path`; `wanted` counts all steps, also those that were not run yet."""
    models = len({_model(step) for step in steps})
    page = "\n".join([HEAD, f"{len(steps)} of {wanted} steps, of {models} models.", "", *lines(steps)])
    print(page)
    if path is not None:
        path.write_text(f"{page}\n", encoding="utf-8")


def _model(step: dict[str, Any]) -> str:
    return str(step["step"]).partition(",")[0]


def lines(steps: list[dict[str, Any]]) -> list[str]:
    """The part, line by line."""
    told = [step for step in steps if "cases" in step]
    cases = [{**case, "step": step["step"], "every": step["every"]} for step in told for case in step["cases"]]
    more = [case for case in cases if case["factor"] > 1]
    rows = [_row(f"{factor:g}", [case for case in cases if case["factor"] == factor]) for factor in _factors(cases)]
    return [
        "| times the least memory | cases | `place` | `infer_auto_device_map` | balanced | every assignment run: one fits "
        "| `place` finds one |",
        "|---|---|---|---|---|---|---|",
        *rows,
        _row("1.1 to 1.5", more),
        "",
        *_hops(cases),
        *_misses(more),
        *_left_out(steps),
    ]


def _factors(cases: list[Case]) -> list[float]:
    return sorted({case["factor"] for case in cases})


def _row(name: str, cases: list[Case]) -> str:
    every = [case for case in cases if case["every"]]
    fitting = [_fits(cases, who) for who in ("place", "infer", "auto")]
    counts = [len(cases), *fitting, _fits(every, "any"), _fits(every, "place")]
    return f"| {name} | {' | '.join(map(str, counts))} |"


def _fits(cases: list[Case], who: str) -> int:
    return sum(case[who] is not None for case in cases)


def _hops(cases: list[Case]) -> list[str]:
    """Where both fit, who has more."""

    def said(who: str) -> str:
        pairs = [(case["place"], case[who]) for case in cases if None not in (case["place"], case[who])]
        more, fewer = sum(ours > theirs for ours, theirs in pairs), sum(ours < theirs for ours, theirs in pairs)
        return f"{len(pairs)} cases, more hops in {more} and fewer in {fewer}"

    return [
        f"Where both fit, layouts have: beside `infer_auto_device_map` in {said('infer')}; beside the balanced one in",
        f"{said('auto')}; beside the assignment that fits with the fewest in {said('any')}.",
    ]


def _misses(cases: list[Case]) -> list[str]:
    missed = Counter(case["step"] for case in cases if case["place"] is None)
    theirs = sum(case["place"] is None and (case["infer"] is not None or case["auto"] is not None) for case in cases)
    names = ", ".join(f"{step} ({count})" for step, count in sorted(missed.items()))
    return [
        f"No layout was found at 1.1 to 1.5 times in: {names or 'none'}; a proposal of accelerate fits in {theirs} of these."
    ]


def _left_out(steps: list[dict[str, Any]]) -> list[str]:
    left = [f"{step['step']} ({step['left_out']})" for step in steps if "left_out" in step]
    return [f"Left out: {', '.join(left)}."] if left else []
