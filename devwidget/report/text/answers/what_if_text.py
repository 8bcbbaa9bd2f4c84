"""Answers to `what if` as text: one sentence, then a table of the plans that were run."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.answers.what_if import Change, Changes, LargestBatch
from devwidget.records.schema.record import presents
from devwidget.report.style.columns import columns
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.units import counted, format_bytes

Rows = list[tuple[str, ...]]


def sentence(answer: LargestBatch | Changes) -> str:
    """The answer."""
    if isinstance(answer, LargestBatch):
        return _largest(answer)
    cheapest = answer.cheapest
    said = f"the cheapest change that fits: {cheapest.what}" if cheapest is not None else "no change alone makes it fit"
    return f"{answer.model}: {said} · {format_bytes(answer.on_card)} without a change"


def _largest(answer: LargestBatch) -> str:
    sizes = f"{format_bytes(answer.on_card)} of {format_bytes(answer.capacity)}"
    if not answer.size:
        return f"{answer.model}: not even one sample fits, it takes {sizes}"
    return f"{answer.model}: a batch of {answer.size} fits, {sizes}, and a larger one does not"


def rows(answer: LargestBatch | Changes) -> Rows:
    """The plans that were run, under a heading."""
    if isinstance(answer, Changes):
        head = ("change", "on the card", "saved", "", "what it costs", "what to write")
        return [head, *(_row(change) for change in answer.changes)]
    ordered = sorted(answer.runs, key=lambda run: run.size)
    planned = [(str(run.size), format_bytes(run.on_card), _fits(run.fits)) for run in ordered]
    return [("batch", "on the card", ""), *planned]


def _row(change: Change) -> tuple[str, ...]:
    if change.problem:
        return (change.what, "", "", change.problem, "", change.code)
    sign = "-" if change.saved < 0 else ""
    sizes = format_bytes(change.on_card), sign + format_bytes(abs(change.saved))
    return (change.what, *sizes, _fits(change.fits), change.cost, change.code)


def _fits(fits: bool) -> str:
    return "fits" if fits else "does not fit"


@presents("text", LargestBatch)
@presents("text", Changes)
def what_if_text(answer: LargestBatch | Changes) -> str:
    """The sentence and the table."""
    return text_of(_lines(answer))


def _lines(answer: LargestBatch | Changes) -> Iterator[str]:
    yield sentence(answer)
    table = rows(answer)
    yield from columns(table, right=(1, 2) if isinstance(answer, Changes) else (0, 1), indent="  ")
    yield f"{counted(len(table) - 1, 'plan')} run"
