"""A plan as text: one row per GPU, or per kind of rank, then what does not fit and where it tips over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from devwidget.language.speaking import said, say
from devwidget.records.plan import DevicePlan, Plan, PlanMoment
from devwidget.records.ranks.parallel_plan import ParallelPlan, RankPlan
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import presents
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.units import count_words, format_bytes
from devwidget.report.style.words import align_columns, code_word, ranks_words, row_words, site_words

TOTALS = {"peak": Message("peak"), "capacity": Message("capacity")}
"""Attribute of a GPU's plan -> its heading, where GPUs are nothing but a capacity."""
TOTALS_OF_CARD = {
    "on_card": Message("on the card"),
    "reserved": Message("reserved"),
    "peak": Message("allocated"),
    "capacity": Message("capacity"),
}
PARTS = {
    "weights": Message("weights"),
    "gradients": Message("gradients"),
    "optimizer": Message("optimizer"),
    "activations": Message("activations"),
}
"""Attribute of a GPU's plan -> its heading, for the parts of its peak."""


@presents("text", Plan)
def plan_text(plan: Plan) -> str:
    """The answer to `will it fit?`."""
    return text_of(_plan_lines(plan))


def _plan_lines(plan: Plan) -> Iterator[str]:
    yield plan_verdict(plan)
    totals = totals_of(plan)
    header = ("", *map(said, totals.values()), *map(said, PARTS.values()), "")
    rows = [(str(device.device), *size_cells(device, totals), _answer_words(device)) for device in plan.devices]
    yield from align_columns([header, *rows], right=range(1, len(header) - 1), indent="  ")
    for device in plan.devices:
        if device.tips_over is not None:
            yield tips_words(plan, device)
    if plan.card:
        yield band_words(plan)
    if plan.guesses:
        yield guess_words(plan)
    if plan.device_map:
        yield say("device map")
        yield from align_columns([(path or say("the whole model"), device) for path, device in plan.device_map], indent="  ")


def plan_verdict(plan: Plan) -> str:
    """The first line."""
    placed = code_word(plan.placement)
    if plan.card:
        placed = say("{placement} on {card}", placement=placed, card=plan.card)
    phases = row_words(map(code_word, plan.phases))
    return (
        say("Plan: {model}, {placed}: {answer}", model=plan.model, placed=placed, answer=_answer_words(plan)) + f" · {phases}"
    )


def _answer_words(plan: Plan | DevicePlan) -> str:
    return fits_words(plan.fits)


def fits_words(fits: bool) -> str:
    """The answer for a GPU, or for all of them."""
    return say("fits") if fits else say("does not fit")


def totals_of(plan: Plan) -> Mapping[str, str]:
    """The attributes of a GPU's plan that are sums, with their headings."""
    return TOTALS_OF_CARD if plan.card else TOTALS


def size_cells(device: DevicePlan, totals: Iterable[str]) -> list[str]:
    """The sums and the parts of the peak."""
    return [format_bytes(getattr(device, name)) for name in (*totals, *PARTS)]


def tips_words(plan: Plan, device: DevicePlan) -> str:
    """What does not fit, and what is the first to exceed it."""
    over = format_bytes(device.on_card - device.capacity)
    return say(
        "{device} needs {over} more: {moment} is the first to exceed it",
        device=device.device,
        over=over,
        moment=moment_words(plan, device.tips_over),
    )


def band_words(plan: Plan) -> str:
    """How far the fullest GPU may be from what is predicted."""
    fullest = min(plan.devices, key=lambda device: device.capacity - device.on_card)
    least, most = map(format_bytes, fullest.on_card_band)
    facts = {"device": fullest.device, "least": least, "most": most}
    if fullest.is_close:
        return say(
            "{device} may take {least} to {most}, as far as plans were off on real cards; the capacity is between", **facts
        )
    return say("{device} may take {least} to {most}, as far as plans were off on real cards", **facts)


def guess_words(plan: Plan) -> str:
    """Where the plan is a guess."""
    where = moment_words(plan, plan.guesses[0])
    if len(plan.guesses) > 1:
        where = say("{place}, and {others}", place=where, others=count_words(len(plan.guesses) - 1, "other place"))
    return say("guessed in {where}: choices among unknown numbers are spread evenly", where=where)


def moment_words(plan: Plan, moment: PlanMoment | None) -> str:
    """Which part of the step, which module, and its line; "" for a GPU that is not used."""
    if moment is None:
        return ""
    line = f" ({site_words(moment.site)})" if moment.site else ""
    phase = code_word(moment.phase)
    if moment.phase == "build":
        return say("placing `{module}`", module=moment.module) if moment.module else say("placing the model")
    if moment.module is None:
        return say("the {phase}", phase=phase) + line if moment.phase != "optimizer" else say("the optimizer's step")
    if plan.placement == "data parallel" and not moment.module and not moment.site:
        return say("what DataParallel copies in {phase}", phase=phase)
    module = f"`{moment.module}`" if moment.module else say("the model itself")
    return say("{module} in {phase}", module=module, phase=phase) + line


_RANK_SIZES = {
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
    return text_of(_parallel_plan_lines(plan))


def _parallel_plan_lines(plan: ParallelPlan) -> Iterator[str]:
    mesh = row_words([" x ".join(f"{name} {size}" for name, size in plan.mesh), *plan.ways])
    yield say("Plan: {model} on {mesh}: {answer}", model=plan.model, mesh=mesh, answer=fits_words(plan.fits))
    names = [name for name in _RANK_SIZES if name not in _OF_SOME or any(getattr(each, _OF_SOME[name]) for each in plan.ranks)]
    header = ("", *(said(_RANK_SIZES[name]) for name in names), "")
    rows = [_rank_row(each, names) for each in plan.ranks]
    yield from align_columns([header, *rows], right=range(1, len(header) - 1), indent="  ")
    for each in plan.ranks:
        if each.without:
            yield say(
                "{ranks} hold no element of {without} of {parameters}",
                ranks=ranks_words(each.ranks),
                without=each.without,
                parameters=count_words(plan.parameters, "parameter"),
            )
        if not each.fits:
            missing = format_bytes(each.peak - each.capacity)
            yield say("{ranks} need {size} more", ranks=ranks_words(each.ranks), size=missing) + _moment_words(each)


def _rank_row(each: RankPlan, names: list[str]) -> tuple[str, ...]:
    sizes = (format_bytes(getattr(each, name)) for name in names)
    return (ranks_words(each.ranks), *sizes, fits_words(each.fits))


def _moment_words(each: RankPlan) -> str:
    if each.peak_at is None:
        return ""
    phase = code_word(each.peak_at.phase)
    if each.peak_at.module:
        return say(": the peak is in `{module}` in {phase}", module=each.peak_at.module, phase=phase)
    return say(": the peak is in {phase}", phase=phase)
