"""A plan for many ranks as text: one row for each kind of rank, then what does not fit and who holds nothing."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.language.speaking import said, say
from devwidget.records.ranks.parallel_plan import ParallelPlan, RankPlan
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import presents
from devwidget.report.style.code_words import code_word
from devwidget.report.style.columns import columns
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.units import counted, format_bytes
from devwidget.report.style.words import ranks_words, row_words
from devwidget.report.text.plan_text import fits_words

_SIZES = {
    "peak": Message("peak"),
    "parameters": Message("parameters"),
    "gathered": Message("gathered"),
    "gradients": Message("gradients"),
    "buckets": Message("buckets"),
    "optimizer": Message("optimizer"),
    "activations": Message("activations"),
    "most_gathered": Message("most gathered"),
}
"""Attribute of a rank's plan -> its heading."""
_OF_SOME = {"gathered": "most_gathered", "most_gathered": "most_gathered", "buckets": "buckets"}
"""Columns of one way to spread a model -> the attribute that is zero in all others."""


@presents("text", ParallelPlan)
def parallel_plan_text(plan: ParallelPlan) -> str:
    """The answer to `will it fit on so many ranks?`."""
    return text_of(_lines(plan))


def _lines(plan: ParallelPlan) -> Iterator[str]:
    mesh = row_words([" x ".join(f"{name} {size}" for name, size in plan.mesh), *plan.ways])
    yield say("Plan: {model} on {mesh}: {answer}", model=plan.model, mesh=mesh, answer=fits_words(plan.fits))
    names = [name for name in _SIZES if name not in _OF_SOME or any(getattr(each, _OF_SOME[name]) for each in plan.ranks)]
    header = ("", *(said(_SIZES[name]) for name in names), "")
    rows = [_row(each, names) for each in plan.ranks]
    yield from columns([header, *rows], right=range(1, len(header) - 1), indent="  ")
    for each in plan.ranks:
        if each.without:
            yield say(
                "{ranks} hold no element of {without} of {parameters}",
                ranks=ranks_words(each.ranks),
                without=each.without,
                parameters=counted(plan.parameters, "parameter"),
            )
        if not each.fits:
            missing = format_bytes(each.peak - each.capacity)
            yield say("{ranks} need {size} more", ranks=ranks_words(each.ranks), size=missing) + _moment(each)


def _row(each: RankPlan, names: list[str]) -> tuple[str, ...]:
    sizes = (format_bytes(getattr(each, name)) for name in names)
    return (ranks_words(each.ranks), *sizes, fits_words(each.fits))


def _moment(each: RankPlan) -> str:
    if each.peak_at is None:
        return ""
    phase = code_word(each.peak_at.phase)
    if each.peak_at.module:
        return say(": the peak is in `{module}` in {phase}", module=each.peak_at.module, phase=phase)
    return say(": the peak is in {phase}", phase=phase)
