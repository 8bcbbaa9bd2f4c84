"""Answers to `what if` as text: one sentence, then a table of the plans that were run."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.language.speaking import said, say
from devwidget.records.answers.what_if import Change, Changes, LargestBatch
from devwidget.records.schema.record import presents
from devwidget.report.style.columns import columns
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.units import counted, format_bytes
from devwidget.report.text.plan_text import fits_words

Rows = list[tuple[str, ...]]


def sentence(answer: LargestBatch | Changes) -> str:
    """The answer."""
    if isinstance(answer, LargestBatch):
        return _largest(answer)
    cheapest = answer.cheapest
    told = say("no change alone makes it fit")
    if cheapest is not None:
        told = say("the cheapest change that fits: {change}", change=said(cheapest.what))
    size = format_bytes(answer.on_card)
    return say("{model}: {told} · {size} without a change", model=answer.model, told=told, size=size)


def _largest(answer: LargestBatch) -> str:
    facts = {"model": answer.model, "taken": format_bytes(answer.on_card), "capacity": format_bytes(answer.capacity)}
    if not answer.size:
        return say("{model}: not even one sample fits, it takes {taken} of {capacity}", **facts)
    return say("{model}: a batch of {size} fits, {taken} of {capacity}, and a larger one does not", size=answer.size, **facts)


def rows(answer: LargestBatch | Changes) -> Rows:
    """The plans that were run, under a heading."""
    if isinstance(answer, Changes):
        head = (say("change"), say("on the card"), say("saved"), "", say("what it costs"), say("what to write"))
        return [head, *(_row(change) for change in answer.changes)]
    ordered = sorted(answer.runs, key=lambda run: run.size)
    planned = [(str(run.size), format_bytes(run.on_card), fits_words(run.fits)) for run in ordered]
    return [(say("batch"), say("on the card"), ""), *planned]


def _row(change: Change) -> tuple[str, ...]:
    if change.problem:
        return (said(change.what), "", "", said(change.problem), "", change.code)
    sign = "-" if change.saved < 0 else ""
    sizes = format_bytes(change.on_card), sign + format_bytes(abs(change.saved))
    return (said(change.what), *sizes, fits_words(change.fits), said(change.cost), change.code)


@presents("text", LargestBatch)
@presents("text", Changes)
def what_if_text(answer: LargestBatch | Changes) -> str:
    """The sentence and the table."""
    return text_of(_lines(answer))


def _lines(answer: LargestBatch | Changes) -> Iterator[str]:
    yield sentence(answer)
    table = rows(answer)
    yield from columns(table, right=(1, 2) if isinstance(answer, Changes) else (0, 1), indent="  ")
    if isinstance(answer, LargestBatch):
        yield say("{plans} run", plans=counted(len(table) - 1, "plan"))
