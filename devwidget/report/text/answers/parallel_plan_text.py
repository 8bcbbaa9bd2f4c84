"""A plan for many ranks as text: one row for each kind of rank, then what does not fit and who holds nothing."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.ranks.parallel_plan import ParallelPlan, RankPlan
from devwidget.records.ranks.runs import in_words
from devwidget.records.schema.record import presents
from devwidget.report.style.columns import columns
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.units import counted, format_bytes

_SIZES = ("peak", "parameters", "gathered", "gradients", "optimizer", "activations", "most_gathered")


@presents("text", ParallelPlan)
def parallel_plan_text(plan: ParallelPlan) -> str:
    """The answer to `will it fit on so many ranks?`."""
    return text_of(_lines(plan))


def _lines(plan: ParallelPlan) -> Iterator[str]:
    mesh = " x ".join(f"{name} {size}" for name, size in plan.mesh)
    yield f"Plan: {plan.model} on {mesh}: {'fits' if plan.fits else 'does not fit'}"
    header = ("", *(name.replace("_", " ") for name in _SIZES), "")
    yield from columns([header, *map(_row, plan.ranks)], right=range(1, len(header) - 1), indent="  ")
    for each in plan.ranks:
        if each.without:
            who = in_words(each.ranks)
            yield f"{who} hold no element of {each.without} of {counted(plan.parameters, 'parameter')}"
        if not each.fits:
            yield f"{in_words(each.ranks)} need {format_bytes(each.peak - each.capacity)} more{_moment(each)}"


def _row(each: RankPlan) -> tuple[str, ...]:
    sizes = (format_bytes(getattr(each, name)) for name in _SIZES)
    return (in_words(each.ranks), *sizes, "fits" if each.fits else "does not fit")


def _moment(each: RankPlan) -> str:
    if each.peak_at is None:
        return ""
    module = f"`{each.peak_at.module}` in " if each.peak_at.module else ""
    return f": the peak is in {module}{each.peak_at.phase}"
