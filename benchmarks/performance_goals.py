"""The goals of the benchmarks, and where they are missed: beside the floor of the same run, where there is one.

A peer *records as much* if its results name the module and the line of the user behind each operator, which figure.py finds out
by looking for both in them (`told`). Devices, births, transfers and findings, which ours tells too, are not asked of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

from recorders import RECORDERS
from workloads import WORKLOADS

Answers = dict[str, dict[str, Any]]
INSIDE_GOALS = dict(zip(WORKLOADS, (1.10, 1.10, 3.5, None, 6.0, None), strict=True))
WHOLE_GOALS_MS = {"devwidget.record": 1.0, "devwidget.trace": 3.0}
FLOOR_GOAL, IMPORT_GOAL_MS = 1.35, 60
CLICK_GOALS = {
    "clean": dict(zip(WORKLOADS, (1.2, None, 5.0), strict=False)),
    "tried": dict(zip(WORKLOADS, (3.5, None, 12.0), strict=False)),
    "tried, AdamW": dict(zip(WORKLOADS, (3.5, None, 12.0), strict=False)),
}
WHY_GOAL_MS, COLD_GOAL_MS = 50, 1500
MLP, GPT2 = "four-layer MLP", "GPT-2 small, 1 x 128"
FLOOR, SAME_FACTS, OURS = "bare modes and hooks", "bare, same facts", "devwidget.record"


def figure(answers: Answers, model: str, tool: str, form: str, part: str) -> float | None:
    """A ratio inside, milliseconds beyond plain for a whole call; None where there is none."""
    answer = answers.get(f"recording|{model}|{tool}", {})
    if f"{form} {part}" not in answer:
        return None
    taken, plain = answer[f"{form} {part}"], answer[part]
    return taken / plain if form == "inside" else (taken - plain) * 1e3


def of_kind(answers: Answers, kind: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Subject, tool and answer of each figure of a kind that was measured."""
    for name, answer in answers.items():
        asked, subject, tool = name.split("|")
        if asked == kind and "error" not in answer:
            yield subject, tool, answer


def behind(answers: Answers, missing: int) -> str:
    """One line for each goal that is missed and each row in which a peer is ahead."""
    lines = [
        f"* {line}"
        for line in (
            *_inside(answers),
            *_whole(answers),
            *_looking(answers),
            *_lookers_ahead(answers),
            *_waited(answers),
            *_slower(answers),
        )
    ]
    if missing:
        lines.append(f"* {missing} figures are missing: of them nothing is said here.")
    return "\n".join(lines) or "* Nowhere."


def _inside(answers: Answers) -> Iterator[str]:
    """Models whose recording costs more than the goal, or too much more than modes that do nothing."""
    for model, goal in INSIDE_GOALS.items():
        ours, floor, least = (figure(answers, model, tool, "inside", "forward") for tool in (OURS, FLOOR, SAME_FACTS))
        if ours is None:
            continue
        missed = [f"{ours:.2f} times plain (goal {goal:.2f})"] if goal is not None and ours > goal else []
        if floor is not None and ours > FLOOR_GOAL * floor:
            missed.append(f"{ours / floor:.2f} times modes and hooks that do nothing (goal {FLOOR_GOAL})")
        if missed and least is not None:
            missed.append(f"{ours / least:.2f} times modes and hooks that write down the same facts and nothing else")
        if missed:
            yield f"Inside a recording, {model} costs {', '.join(missed)}."


def _whole(answers: Answers) -> Iterator[str]:
    for tool, goal in WHOLE_GOALS_MS.items():
        beyond = figure(answers, MLP, tool, "whole", "forward")
        if beyond is not None and beyond > goal:
            yield f"The whole call of `{tool}` costs {beyond:.2f} ms beyond plain on the {MLP}; the goal is {goal:.0f} ms."
    answer = answers.get(f"recording|{GPT2}|devwidget.trace", {})
    if answer.get("whole forward", 0.0) > 1.2 * answer.get("forward", 1.0):
        ratio = answer["whole forward"] / answer["forward"]
        yield f"A whole trace of GPT-2's forward costs {ratio:.2f} times plain; the goal is 1.2."


def _looking(answers: Answers) -> Iterator[str]:
    for size, tool, answer in of_kind(answers, "snapshot"):
        ratio = answer["look"] / answer["floor"]
        if tool == "devwidget.snapshot" and ratio > 1.3:
            yield f"A snapshot of {int(size):,} modules costs {ratio:.2f} times the bare walk; the goal is 1.3."
    for _, _, answer in of_kind(answers, "importing"):
        if answer["import"] * 1e3 > IMPORT_GOAL_MS:
            yield f"`import devwidget` adds {answer['import'] * 1e3:.0f} ms to `import torch`; the goal is {IMPORT_GOAL_MS} ms."


def _lookers_ahead(answers: Answers) -> Iterator[str]:
    """Peers that look at a model in less time, and those that add less to a watched step of the smallest model."""
    looks = {(size, tool): answer["look"] for size, tool, answer in of_kind(answers, "snapshot")}
    for peer, lack in LOOKERS.items():
        sizes = [size for size, tool in looks if tool == peer and looks[size, peer] < looks.get((size, OUR_LOOK), 0.0)]
        if sizes:
            counts = ", ".join(f"{int(size):,}" for size in sizes)
            yield f"{peer} is ahead of `{OUR_LOOK}` in a look at {counts} modules, and tells {lack}."
    ratios = {tool: answer["watched"] / answer["plain"] for model, tool, answer in of_kind(answers, "watched") if model == MLP}
    for peer, lack in WATCHERS.items():
        if ratios.get(peer, math.inf) < ratios.get(OUR_WATCH, 0.0):
            yield f"{peer} adds less to a step than `{OUR_WATCH}`, and tells {lack}."


def _waited(answers: Answers) -> Iterator[str]:
    """Clicks that cost more steps of the model than the goal, and other answers that take longer."""
    words = {"clean": "A clean trace", "tried": "A trace with one fault whose edit is tried"}
    words["tried, AdamW"] = f"{words['tried']}, with AdamW,"
    for name, model, answer in of_kind(answers, "answer"):
        if name == "clicks":
            for kind, goals in CLICK_GOALS.items():
                goal = goals.get(model)
                if goal is not None and answer[kind] > goal:
                    yield f"{words[kind]} of {model} costs {answer[kind]:.1f} steps (goal {goal:.1f})."
        if name == "why" and answer["why"] * 1e3 > WHY_GOAL_MS:
            yield f"`%devwidget why` takes {answer['why'] * 1e3:.0f} ms (goal {WHY_GOAL_MS})."
        if name == "cold" and (beyond := (answer["first"] - answer["second"]) * 1e3) > COLD_GOAL_MS:
            yield f"The first trace in a process takes {beyond:.0f} ms more than the next one (goal {COLD_GOAL_MS})."


OUR_LOOK, OUR_WATCH = "devwidget.snapshot", "devwidget.watch"
LOOKERS = {
    "torchinfo.summary": "no device and no plain attribute",
    "pytorch_memlab": "no dtype, no module and no plain attribute",
}
WATCHERS = {
    "torch.profiler, its schedule": "nothing of the steps between those that it records",
    "TraceML": "no module and no fix",
}
"""Peers, and what they do not tell."""
FORMS = {"inside": "inside an open recording", "whole": "as a whole call"}
AS_MUCH = ("module", "line")
PEERS = [tool for tool in RECORDERS if not tool.startswith(("devwidget", "bare"))]


def lacks(answers: Answers, tool: str) -> list[str]:
    """What a tool does not tell of an operator; all of it, if that was not measured."""
    return [fact for fact in AS_MUCH if not answers.get(f"told|{tool}|", {}).get(fact)]


def _ahead(answers: Answers, peer: str, form: str) -> list[tuple[str, str]]:
    """The models and parts of a step in which a peer costs less than ours."""
    rows = []
    for model, part in product(WORKLOADS, ("forward", "step")):
        ours, theirs = (figure(answers, model, tool, form, part) for tool in (OURS, peer))
        if ours is not None and theirs is not None and theirs < ours:
            rows.append((model, part))
    return rows


def _slower(answers: Answers) -> Iterator[str]:
    """Rows in which a peer is ahead: each of one that records as much, and how many of one that does not."""
    for peer, form in product(PEERS, FORMS):
        rows, lacking = _ahead(answers, peer, form), lacks(answers, peer)
        if not lacking:
            yield from (f"{model}, a {part} {FORMS[form]}: ahead of `{OURS}`: {peer}." for model, part in rows)
        elif rows:
            where, missing = ", ".join(dict.fromkeys(model for model, _ in rows)), " and no ".join(lacking)
            ahead = f"{peer} is ahead in {len(rows)} rows {FORMS[form]} ({where})"
            yield f"{ahead}, and tells no {missing}{_later(answers, peer, form)}."


def _later(answers: Answers, peer: str, form: str) -> str:
    """What a tool that is cheap inside leaves for its end."""
    shares = []
    for model, part in product(WORKLOADS, ("forward", "step")) if form == "inside" else ():
        inside, whole, ours = (
            figure(answers, model, t, f, part) for t, f in ((peer, "inside"), (peer, "whole"), (OURS, "whole"))
        )
        plain = answers.get(f"recording|{model}|{peer}", {}).get(part, 0.0) * 1e3
        if inside is not None and whole and ours:
            shares.append((1 - (inside - 1) * plain / whole, whole / ours))
    if not shares:
        return ""
    left, times = (sorted(each) for each in zip(*shares, strict=True))
    return (
        f"; {left[0]:.0%} to {left[-1]:.0%} of what its whole call costs comes after the block, "
        f"and that is {times[0]:.1f} to {times[-1]:.1f} times what ours costs"
    )
