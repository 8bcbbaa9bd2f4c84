"""A watched run as text: times of its steps, memory, recorded steps, and findings."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.watch.records.run import PARTS, StepRows, WatchedRun
from devwidget.language.speaking import said, say
from devwidget.records.schema.message import Message
from devwidget.report.page.draw_page import shows
from devwidget.report.report_parts import GAP, Part, Sentence, Table
from devwidget.report.style.units import count_words, format_bytes, format_seconds
from devwidget.report.text.finding_text import finding_parts

PART_NAMES = {
    "data": Message("between the steps"),
    "forward": Message("forward"),
    "loss": Message("loss"),
    "backward": Message("backward"),
    "optimizer": Message("optimizer"),
    "evaluation": Message("evaluation"),
    "other": Message("other"),
}


@shows(WatchedRun)
def run_parts(run: WatchedRun) -> Iterator[Part]:
    """Yield the verdict, the findings, then times, memory and recorded steps."""
    yield Sentence(verdict_words(run), "verdict")
    if run.error:
        yield Sentence(say("ended with {error}", error=run.error.partition("\n")[0]), "over")
    for finding in run.findings:
        yield from finding_parts(finding)
    if run.steps.total:
        yield GAP
        yield Table([(say("part"), say("mean of a step"), say("share")), *_time_rows(run.steps)], right=(1, 2))
    if run.steps.memory:
        head = (say("device"), say("allocated at first"), say("at the end"), say("most"), say("peak"))
        yield Table([head, *_memory_rows(run.steps)], right=(1, 2, 3, 4))
    for step in run.recorded_steps:
        words = say("step {step} was recorded: {reason}", step=step.number, reason=said(step.reason))
        yield Sentence(words)
    for note in run.not_checked:
        yield Sentence(say("not checked: {reason}", reason=said(note)))


def verdict_words(run: WatchedRun) -> str:
    """Return `Watched run of GPT2: 300 steps, 2 findings`."""
    found = say("no findings")
    if run.findings:
        found = count_words(len(run.findings), "finding")
    steps = count_words(run.steps.total, "step")
    return say("Watched run of {model}: {steps}, {findings}", model=run.model, steps=steps, findings=found)


def _time_rows(steps: StepRows) -> list[tuple[str, str, str]]:
    plain = [at for at, recorded in enumerate(steps.recorded) if not recorded] or range(len(steps))
    count = sum(steps.count[at] for at in plain)
    taken = {part: sum(getattr(steps, part)[at] for at in plain) for part in PARTS}
    whole = sum(taken.values())
    rows = []
    for part, microseconds in taken.items():
        if microseconds:
            mean = format_seconds(microseconds / count / 1e6)
            rows.append((said(PART_NAMES[part]), mean, f"{microseconds / whole:.0%}"))
    return rows


def _memory_rows(steps: StepRows) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for each in steps.memory:
        sizes = each.allocated[0], each.allocated[-1], max(each.allocated), each.peak[-1]
        rows.append((str(each.device), *map(format_bytes, sizes)))
    return rows
