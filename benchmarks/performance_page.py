"""docs/performance.md of what was measured: tables of ratios, the goals, and where they are missed."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from recorders import RECORDERS
from workloads import WORKLOADS

Answers = dict[str, dict[str, Any]]
INSIDE_GOALS = dict(zip(WORKLOADS, (1.10, 1.10, 3.5, None, 6.0, None), strict=True))
WHOLE_GOALS_MS = {"devwidget.record": 1.0, "devwidget.trace": 3.0}
MLP, GPT2 = "four-layer MLP", "GPT-2 small, 1 x 128"
FLOOR, OURS = "bare modes and hooks", "devwidget.record"
WHY = """
* A recording opens 28 patches, two modes and the module hooks, and closes them again in whatever order recordings end; that is
  a third of what a short call costs beyond its operators, and reading the records and judging them is another third.
  DebugMode patches nothing, and tells no births, no arrivals from NumPy or files, no threads and no DataParallel.
* Every operator keeps the line of the user, found by a walk up the stack, and the line that decided where its tensors live.
  The profiler writes events in C++ and makes sense of them at its end, so it is cheaper inside and dearer as a whole.
* `devwidget.trace` reads what a step may change before it runs, and compares and puts it back afterwards.
* A refresh has to look at every tensor again: anybody may have written `.data`, which nothing tells.
"""


def this_machine() -> dict[str, str]:
    """What the figures were taken on."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "Python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "transformers", "torchlens", "torchinfo", "pytorch_memlab")},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def page(measured: dict[str, Any]) -> str:
    """The whole page."""
    answers: Answers = measured["answers"]
    machine = ", ".join(f"{name} {value}" for name, value in measured["machine"].items())
    rounds = " Few rounds were run (`--quick`), on a machine with other work." if measured["quick"] else ""
    late = [name.replace("|", ", ") for name, each in answers.items() if "error" in each]
    absent = [f"{model}, {tool}" for model in WORKLOADS for tool in RECORDERS if f"recording|{model}|{tool}" not in answers]
    if absent or late:
        rounds += f" Not measured this time: {'; '.join([*absent, *late])}."
    parts = (
        "# Performance\n\n`make bench` writes this page: one process for each figure, processor time against plain PyTorch in\n"
        f"the same process, medians, one thread.{rounds}\n\nMeasured on: {machine}.",
        "## What is written down\n\n"
        + _table(["tool", "of each operator"], ([name, each.tells] for name, each in RECORDERS.items())),
        "## A pass inside an open recording, against plain\n\n" + _recordings(answers, "inside", "forward"),
        "## A training step inside an open recording, against plain\n\n" + _recordings(answers, "inside", "step"),
        "## The whole call: set-up, forward, results; milliseconds beyond plain\n\n" + _recordings(answers, "whole", "forward"),
        "## The whole call around a training step; milliseconds beyond plain\n\n" + _recordings(answers, "whole", "step"),
        "## A look at a model, milliseconds\n\n" + _looks(answers),
        "## What is kept\n\n" + _kept(answers),
        "## Growth: microseconds for each unit of one whole call\n\n" + _growth(answers),
        "## Other prices\n\n" + _others(answers),
        "## Where we are behind, and why\n\n" + _behind(answers) + WHY.rstrip(),
    )
    return "\n\n".join(parts) + "\n"


def _table(head: list[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _figure(answers: Answers, model: str, tool: str, form: str, part: str) -> float | None:
    """A ratio inside, milliseconds beyond plain for a whole call; None where there is none."""
    answer = answers.get(f"recording|{model}|{tool}", {})
    if f"{form} {part}" not in answer:
        return None
    taken, plain = answer[f"{form} {part}"], answer[part]
    return taken / plain if form == "inside" else (taken - plain) * 1e3


def _recordings(answers: Answers, form: str, part: str) -> str:
    tools = [name for name in RECORDERS if any(_figure(answers, model, name, form, part) is not None for model in WORKLOADS)]
    rows = []
    for model in WORKLOADS:
        found = [_figure(answers, model, tool, form, part) for tool in tools]
        if any(each is not None for each in found):
            rows.append([model, *("" if each is None else f"{each:.2f}" for each in found)])
    return _table(["model", *tools], rows)


def _of_kind(answers: Answers, kind: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, answer in answers.items():
        asked, subject, tool = name.split("|")
        if asked == kind and "error" not in answer:
            yield subject, tool, answer


def _looks(answers: Answers) -> str:
    found = list(_of_kind(answers, "snapshot"))
    tools = list(dict.fromkeys(tool for _, tool, _ in found))
    rows = []
    for size in dict.fromkeys(size for size, _, _ in found):
        mine = {tool: answer for each, tool, answer in found if each == size}
        cells = [f"{mine[t]['look'] * 1e3:.1f} ({mine[t]['look'] / mine[t]['walk']:.2f})" if t in mine else "" for t in tools]
        rows.append([f"{next(iter(mine.values()))['modules']:,}", *cells])
    return (
        _table(["modules", *tools], rows) + "\n\nIn brackets: against a bare walk in the same run that reads the same fields."
    )


def _kept(answers: Answers) -> str:
    rows = [
        [
            model,
            str(a["ops"]),
            f"{a['bytes per op']:.0f}",
            f"{a['file'] / 1024:.0f}",
            f"{a['save'] * 1e3:.1f}",
            f"{a['load'] * 1e3:.1f}",
        ]
        for model, _, a in _of_kind(answers, "kept")
    ]
    return _table(["model", "operators", "bytes for each", "file, KiB", "save, ms", "load, ms"], rows)


def _growth(answers: Answers) -> str:
    axes: dict[str, list[str]] = {}
    for axis, size, answer in _of_kind(answers, "growth"):
        axes.setdefault(axis, []).append(f"{answer['seconds'] / answer['units'] * 1e6:.1f} ({int(size):,})")
    return _table(["of", "for each (of how many)"], ([axis, ", ".join(cells)] for axis, cells in axes.items()))


def _others(answers: Answers) -> str:
    lines = []
    for _, _, answer in _of_kind(answers, "importing"):
        lines.append(
            f"* `import devwidget` adds {answer['import'] * 1e3:.0f} ms to `import torch`, "
            f"its first recording {answer['first'] * 1e3:.0f} ms."
        )
    for _, _, answer in _of_kind(answers, "trial"):
        share = answer["trial"] / answer["trace"]
        lines.append(
            f"* A trial of a fix of the thin GPT-2 costs {answer['trial'] * 1e3:.0f} ms, {share:.2f} of the trace without it."
        )
    return "\n".join(lines)


def _behind(answers: Answers) -> str:
    return "\n".join(f"* {line}" for line in (*_missed(answers), *_slower(answers))) or "* Nowhere."


def _missed(answers: Answers) -> Iterator[str]:
    for model, goal in INSIDE_GOALS.items():
        ratio, floor = (_figure(answers, model, tool, "inside", "forward") for tool in (OURS, FLOOR))
        if ratio is not None and goal is not None and ratio > goal:
            yield f"Inside a recording, {model} costs {ratio:.2f} times plain; the goal is {goal:.2f}."
        if ratio is not None and floor is not None and ratio > 1.35 * floor:
            yield f"Inside a recording, {model} costs {ratio / floor:.2f} times the bare floor; the goal is 1.35."
    for tool, goal in WHOLE_GOALS_MS.items():
        beyond = _figure(answers, MLP, tool, "whole", "forward")
        if beyond is not None and beyond > goal:
            yield f"The whole call of `{tool}` costs {beyond:.2f} ms beyond plain on the {MLP}; the goal is {goal:.0f} ms."
    answer = answers.get(f"recording|{GPT2}|devwidget.trace", {})
    if answer.get("whole forward", 0.0) > 1.2 * answer.get("forward", 1.0):
        ratio = answer["whole forward"] / answer["forward"]
        yield f"A whole trace of GPT-2's forward costs {ratio:.2f} times plain; the goal is 1.2."

    for size, tool, answer in _of_kind(answers, "snapshot"):
        ratio, taken = answer["look"] / answer["walk"], answer["look"] * 1e3
        if tool == "devwidget.snapshot" and ratio > 1.3:
            yield f"A snapshot of {int(size):,} modules costs {ratio:.2f} times the bare walk; the goal is 1.3."
        if tool == "panel, nothing changed" and int(size) == 10_000 and taken > 10:
            yield f"A refresh with nothing changed takes {taken:.0f} ms at 10,000 modules; the goal is 10 ms."
    for _, _, answer in _of_kind(answers, "importing"):
        if answer["import"] > 0.06:
            yield f"`import devwidget` adds {answer['import'] * 1e3:.0f} ms to `import torch`; the goal is 60 ms."


def _slower(answers: Answers) -> Iterator[str]:
    """Rows in which a peer that records is ahead."""
    for form, words in (("inside", "inside an open recording"), ("whole", "as a whole call")):
        for part in ("forward", "step"):
            for model in WORKLOADS:
                ours = _figure(answers, model, OURS, form, part)
                peers = {
                    t: _figure(answers, model, t, form, part) for t in RECORDERS if not t.startswith(("devwidget", "bare"))
                }
                ahead = [name for name, figure in peers.items() if figure is not None and ours is not None and figure < ours]
                if ahead:
                    yield f"{model}, a {part} {words}: ahead of `{OURS}`: {', '.join(ahead)}."
