"""benchmarks/results/performance.md of what was measured: tables of ratios, and where the goals are missed."""

from __future__ import annotations

import os
import platform
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from births_cells import MINUTE_S
from performance_goals import AS_MUCH, Answers, behind, figure, lacks, of_kind
from recorders import RECORDERS
from watch_cost import SMALL
from workloads import WORKLOADS

WHY = """
* A recording opens 28 patches, two modes and the module hooks, and closes them again in any order. That is a third of what a
  short call costs in addition to its operators; reading and judging the records is another third. DebugMode patches none, and
  reports no creation lines, no arrivals from NumPy or files, no threads and no DataParallel.
* Every operator records the line of the user, found by a walk up the stack, and the line that decided where its tensors are.
  `bare, same facts` (`benchmarks/bare_facts.py`) is the least that does so in Python; less is out of reach. torch.profiler
  writes events in C++ and evaluates them at the end, so it is cheaper inside and more expensive as a whole.
* `devwidget.trace` reads what a step may change before it runs, and compares and restores it afterwards.
* In a training step of one or two milliseconds no kernel hides the cost: on a virtual GPU and in a recording it takes more than
  the goal of 5 times plain. `python benchmarks/figure.py small_steps "" ""` prints it, next to a virtual GPU with modes that do
  nothing, which is near that goal already.
"""

CLICKS = {
    "clean": "clean trace",
    "fault": "one fault, no edit tried",
    "tried": "one fault, its edit tried",
    "tried, AdamW": "the same with AdamW",
    "ten faults": "ten faults",
    "ten tried": "ten faults, their edits tried",
}
"""Figures of a click, and how they are called."""
WAITED = {
    "why": "`%devwidget why` in a notebook of 200 cells takes {why:.0f} ms, the first time in a kernel {first:.0f} ms.",
    "cold": "The first trace in a process takes {first:.0f} ms, the next one of the same model {second:.0f} ms.",
    "pages": "The HTML page of a trace of GPT-2 small is written in {html:.0f} ms.",
    "panels": "The panel of GPT-2 small is ready in the kernel in {GPT-2:.0f} ms, that of 10,000 modules in {10,000:.0f} ms.",
    "plans": "A first plan of a step of 1.2 billion parameters takes {plan 1B:.0f} ms, of 7 billion {plan 7B:.0f} ms;\n"
    "  a layout of 7 billion over two cards {place 7B:.0f} ms, of 70 billion {place 70B:.0f} ms.",
    "scripts": "A short script takes {plain:.0f} ms by `python`, {ours:.0f} ms by `python -m devwidget run`.",
    "plugin": "A suite of 1,000 small tests takes {plain:.0f} ms without the plugin for pytest, {ours:.0f} ms with it.",
}
"""Other answers, their figures in milliseconds."""

LATE = "longer than "
"""How the reason begins for which a figure has no answer, or a part of one, if its time was up."""
FEW = 3
"""Missing figures that are named one by one."""


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


def page(measured: dict[str, Any], asked: list[str]) -> str:
    """The whole page.

    Args:
        measured: the answers, the machine, and whether few rounds were run.
        asked: the names of all figures.
    """
    answers: Answers = {name: each for name, each in measured["answers"].items() if name in asked}
    missing = [name for name in asked if "error" in answers.get(name, {"error": "not begun"})]
    machine = ", ".join(f"{name} {value}" for name, value in measured["machine"].items())
    rounds = " Few rounds were run (`--quick`), on a machine with other work." if measured["quick"] else ""
    if missing:
        rounds += f" Of {len(asked)} figures {len(missing)} are missing: {_missing(missing)}."
    parts = (
        "# Performance\n\n`make bench` writes this page: one process for each figure, processor time against plain PyTorch in\n"
        f"the same process, medians, one thread.{rounds}\n\nMeasured on: {machine}.",
        "## What each tool records\n\n" + _told(answers),
        "## A forward pass inside a recording, relative to plain\n\n" + _recordings(answers, "inside", "forward"),
        "## A training step inside a recording, relative to plain\n\n" + _recordings(answers, "inside", "step"),
        "## The whole call of a forward pass: milliseconds more than plain\n\n" + _recordings(answers, "whole", "forward"),
        "## The whole call of a training step: milliseconds more than plain\n\n" + _recordings(answers, "whole", "step"),
        "## A snapshot of a model, milliseconds\n\n" + _looks(answers),
        "## A training step of a watched run, relative to plain\n\n" + _watched(answers),
        "## A training cell of 60 s after `%load_ext devwidget`, relative to plain\n\n" + _cells(answers),
        "## Response times\n\n" + _waited(answers),
        "## Size of traces\n\n" + _kept(answers),
        "## Growth: microseconds for each unit of one whole call\n\n" + _growth(answers),
        "## Other costs\n\n" + (_others(answers) or "Not measured."),
        "## Missed goals, and why\n\n" + behind(answers, len(missing)) + WHY.rstrip(),
    )
    return "\n\n".join(parts) + "\n"


def _missing(names: list[str]) -> str:
    """Which, if they are few; else how many of each kind."""
    few = [", ".join(filter(None, name.split("|"))) for name in names]
    kinds = Counter(name.split("|")[0] for name in names)
    return "; ".join(few) if len(few) <= FEW else ", ".join(f"{kind} {count}" for kind, count in kinds.items())


def _table(head: list[str], rows: Any) -> str:
    filled = list(rows)
    if not filled:
        return "Not measured."
    lines = [head, ["---"] * len(head), *filled]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _recordings(answers: Answers, form: str, part: str) -> str:
    tools = [name for name in RECORDERS if any(figure(answers, model, name, form, part) is not None for model in WORKLOADS)]
    rows = []
    for model in WORKLOADS:
        found = [figure(answers, model, tool, form, part) for tool in tools]
        if any(each is not None for each in found):
            rows.append([model, *(_cell(answers, model, *each, f"{form} {part}") for each in zip(tools, found, strict=True))])
    return _table(["model", *tools], rows)


def _cell(answers: Answers, model: str, tool: str, found: float | None, asked: str) -> str:
    """A figure, or that its time was up; empty where a tool cannot be asked."""
    if found is not None:
        return f"{found:.2f}"
    recorder, late = RECORDERS[tool], answers.get(f"recording|{model}|{tool}", {}).get("late", "")
    can = (recorder.call is None or "step" not in asked) and (recorder.several or "inside" not in asked)
    return late.replace(LATE, "> ") if can else ""


def _told(answers: Answers) -> str:
    """What each tool says that it tells, and whether module and line were found in its results."""
    rows = [
        [
            name,
            each.tells,
            *("" if name.startswith("bare") else "no" if fact in lacks(answers, name) else "yes" for fact in AS_MUCH),
        ]
        for name, each in RECORDERS.items()
    ]
    return _table(["tool", "of each operator", *(f"{fact} in its results" for fact in AS_MUCH)], rows)


def _looks(answers: Answers) -> str:
    found = list(of_kind(answers, "snapshot"))
    tools = list(dict.fromkeys(tool for _, tool, _ in found))
    rows = []
    for size in dict.fromkeys(size for size, _, _ in found):
        mine = {tool: answer for each, tool, answer in found if each == size}
        cells = [f"{mine[t]['look'] * 1e3:.1f} ({mine[t]['look'] / mine[t]['floor']:.2f})" if t in mine else "" for t in tools]
        rows.append([f"{next(iter(mine.values()))['modules']:,}", *cells])
    return (
        _table(["modules", *tools], rows) + "\n\nIn brackets: against a bare walk in the same run that reads the same fields."
    )


def _watched(answers: Answers) -> str:
    """The ratio of each tool, and the microseconds that it adds to the smallest model."""
    found = {(model, tool): answer for model, tool, answer in of_kind(answers, "watched")}
    tools = list(dict.fromkeys(tool for _, tool in found))
    rows = []
    for model in dict.fromkeys(model for model, _ in found):
        ratios = ((found.get((model, tool)), found.get((SMALL, tool))) for tool in tools)
        rows.append([model, *(_watched_cell(*each) for each in ratios)])
    added = [f"{tool} {(each['watched'] - each['plain']) * 1e6:.0f}" for tool in tools if (each := found.get((SMALL, tool)))]
    words = (
        "No step is recorded in it. In brackets: what the tool adds to the four-layer MLP, against plain: it does the same for"
    )
    return _table(["model", *tools], rows) + (
        f"\n\n{words}\neach model. Microseconds that it adds: {', '.join(added)}." if added else ""
    )


def _watched_cell(answer: dict[str, Any] | None, small: dict[str, Any] | None) -> str:
    if answer is None:
        return ""
    known = f" ({1 + (small['watched'] - small['plain']) / answer['plain']:.4f})" if small is not None else ""
    return f"{answer['watched'] / answer['plain']:.3f}{known}"


def _cells(answers: Answers) -> str:
    """What births that are watched by themselves take of a minute: the first calls of a cell alone are watched."""
    rows = []
    for model, _, answer in of_kind(answers, "cells"):
        lost = answer["watched"] - answer["plain"]
        rows.append([model, f"{lost:.2f}", f"{1 + lost / MINUTE_S:.4f}"])
    return _table(["model", "seconds more", "ratio"], rows)


def _waited(answers: Answers) -> str:
    """From a click to its answer in steps of the model, and the other answers in milliseconds."""
    found = {(name, model): answer for name, model, answer in of_kind(answers, "answer")}
    rows = (
        [
            model,
            *(f"{answer[each]:.1f}" for each in CLICKS),
            f"{answer['step'] * 1e3:.0f}",
            *(f"{answer[f'{each} bytes'] / 2**20:.0f}" for each in ("clean", "tried")),
        ]
        for (name, model), answer in found.items()
        if name == "clicks"
    )
    lines = [
        f"* {words.format(**{key: value * 1e3 for key, value in found[name, ''].items()})}"
        for name, words in WAITED.items()
        if (name, "") in found
    ]
    head = ["steps of", *CLICKS.values(), "a step, ms", "MiB at most beyond steps, clean", "with an edit tried"]
    return "\n\n".join(filter(None, (_table(head, rows), "\n".join(lines))))


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
        for model, _, a in of_kind(answers, "kept")
    ]
    return _table(["model", "operators", "bytes for each", "file, KiB", "save, ms", "load, ms"], rows)


def _growth(answers: Answers) -> str:
    axes: dict[str, list[str]] = {}
    for axis, size, answer in of_kind(answers, "growth"):
        axes.setdefault(axis, []).append(f"{answer['seconds'] / answer['units'] * 1e6:.1f} ({int(size):,})")
    return _table(["of", "for each (of how many)"], ([axis, ", ".join(cells)] for axis, cells in axes.items()))


def _others(answers: Answers) -> str:
    lines = []
    for _, _, answer in of_kind(answers, "importing"):
        lines.append(
            f"* `import devwidget` adds {answer['import'] * 1e3:.0f} ms to `import torch`, "
            f"its first recording {answer['first'] * 1e3:.0f} ms."
        )
    for _, _, answer in of_kind(answers, "small_steps"):
        recorded, simulated, both, floor = (answer[f"{name}_ratio"] for name in ("recorded", "simulated", "both", "floor"))
        lines.append(
            f"* A training step of {answer['plain_seconds'] * 1e3:.1f} ms, of a small GRU with its Adam, takes {recorded:.1f} "
            f"times as long recorded, {simulated:.1f} times on a virtual\n  GPU, {both:.1f} times both; "
            f"virtual, with modes that do nothing, {floor:.1f} times."
        )
    return "\n".join(lines)
