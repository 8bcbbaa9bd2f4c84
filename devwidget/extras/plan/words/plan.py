"""A plan: one row per GPU, or per kind of rank, then what does not fit and where it tips over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from devwidget.extras.plan.evidence.compared import Fit
from devwidget.extras.plan.records.parallel_plan import ParallelPlan, RankPlan
from devwidget.extras.plan.records.plan import DevicePlan, LoopPeak, Plan, PlanMoment, PlannedLoop, StepPoint
from devwidget.language.speaking import said, say
from devwidget.records.schema.message import Message
from devwidget.report.page.draw_page import shows, writes
from devwidget.report.report_parts import Part, Sentence, Table
from devwidget.report.style.palette import CATEGORY_HUES
from devwidget.report.style.units import count_words, format_bytes
from devwidget.report.style.words import code_word, ranks_words, row_words, site_words

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
OTHERS = Message("other tensors")
"""What stands for activations in the optimizer's step: the batch, an output that is kept, temporaries."""


_CATEGORIES = {**dict(zip(PARTS, PARTS, strict=True)), "weights": "parameters", "others": "other"}
"""Part of a plan -> the category whose colour it has on every screen."""


@writes(Plan)
def plan_parts(plan: Plan) -> Iterator[Part]:
    """The answer to `will it fit?`."""
    placed = code_word(plan.placement)
    if plan.card:
        placed = say("{placement} on {card}", placement=placed, card=plan.card)
    told = say("Plan: {model}, {placed}: {answer}", model=plan.model, placed=placed, answer=answer_words(plan.fit))
    yield Sentence(f"{told} · {row_words(map(code_word, plan.phases))}", "verdict")
    yield _plan_table(plan)
    yield from (Sentence(tips_words(plan, device), "over") for device in plan.devices if device.tips_over is not None)
    if plan.card:
        yield Sentence(_band_words(plan))
    yield Sentence(" · ".join([*loop_words(plan.loop), *map(_other_loop_words, plan.other_loops)]))
    if plan.guesses:
        yield Sentence(_guess_words(plan))
    if plan.device_map:
        yield Table(map_rows(plan.device_map), title=say("device map"), has_heading=False)


def map_rows(places: Iterable[tuple[str, object]]) -> list[tuple[str, str]]:
    """A device map, a row for each of its entries."""
    return [(path or say("the whole model"), str(place)) for path, place in places]


def part_hue(part: str) -> str:
    """The colour of a part of the peak."""
    return CATEGORY_HUES[_CATEGORIES[part]]


def is_in_optimizer(moment: StepPoint | PlanMoment | None) -> bool:
    """Whether backward has ended, which frees the activations."""
    return moment is not None and moment.phase == "optimizer"


def part_sizes(device: DevicePlan) -> list[str]:
    """The sizes of the parts of a GPU's peak."""
    sizes = [format_bytes(getattr(device, part)) for part in PARTS]
    if is_in_optimizer(device.peak_at):
        sizes[-1] += f" {said(OTHERS)}"
    return sizes


def _plan_table(plan: Plan) -> Table:
    totals = TOTALS_OF_CARD if plan.card else TOTALS
    heads = (*totals.values(), *PARTS.values())
    rows = [("", *map(said, heads), "")]
    for device in plan.devices:
        cells = [format_bytes(getattr(device, name)) for name in totals]
        rows.append((str(device.device), *cells, *part_sizes(device), fit_words(device.fit)))
    return Table(rows, right=range(1, len(heads) + 1))


def fits_words(fits: bool) -> str:
    """The answer for a rank, or for all of them."""
    return say("fits") if fits else say("does not fit")


_FITS: dict[Fit, str] = {
    "fits": Message("fits"),
    "fits by less": Message("fits, closely"),
    "does not fit": Message("does not fit"),
}


def fit_words(fit: Fit) -> str:
    """The answer for a GPU, in a table."""
    return said(_FITS[fit])


def answer_words(fit: Fit) -> str:
    """The answer for all of them."""
    if fit == "fits by less":
        return say("fits, but within the error margin of the estimate")
    return said(_FITS[fit])


def tips_words(plan: Plan, device: DevicePlan) -> str:
    """What does not fit, and what is the first to exceed it."""
    over = format_bytes(device.on_card - device.capacity)
    return say(
        "{device} needs {over} more: {moment} is the first to exceed it",
        device=_without_backticks(str(device.device)),
        over=over,
        moment=tip_moment_words(plan, device.tips_over),
    )


def tip_moment_words(plan: Plan, moment: PlanMoment | None) -> str:
    """When the capacity is exceeded first, which may be in a step before the one whose course is drawn."""
    words = moment_words(plan, moment)
    if moment is not None and moment.is_earlier:
        return say("in the first step, {moment}", moment=words)
    return words


def _without_backticks(name: str) -> str:
    """A name of the user's in a sentence in which backticks are the ends of code."""
    return name.replace("`", "'")


def _band_words(plan: Plan) -> str:
    fullest = plan.tightest
    least, most = map(format_bytes, fullest.on_card_band)
    facts = {"device": fullest.device, "least": least, "most": most}
    if fullest.is_close:
        return say(
            "{device} may take {least} to {most}, with the error margin of plans on real cards; the capacity is between",
            **facts,
        )
    return say("{device} may take {least} to {most}, with the error margin of plans on real cards", **facts)


_LOOPS = {
    "step": Message("loop: the model output is freed when the step ends"),
    "plain": Message("loop: the model output is kept until the next forward ends"),
    "trainer": Message("loop: transformers' Trainer, which frees the model output before backward"),
}


def loop_words(loop: PlannedLoop) -> Iterator[str]:
    """Which loop was planned."""
    yield say("loop: `{name}`", name=loop.name) if loop.is_own else said(_LOOPS[loop.name])
    if loop.accumulate > 1:
        yield say("{count} batches accumulated", count=loop.accumulate)
    if loop.autocast:
        yield say("autocast to {dtype}", dtype=loop.autocast)
    if loop.grad_scaler:
        yield "GradScaler"
    if loop.zero_grad:
        yield say("gradients set to zero") if loop.zero_grad == "zero" else say("gradients set to none")
    if loop.checkpointing:
        yield say("checkpointing") if loop.checkpointing == "checkpointing" else say("reentrant checkpointing")


def _other_loop_words(other: LoopPeak) -> str:
    facts = {"option": f'loop="{other.name}"', "size": format_bytes(other.peak)}
    if other.fits:
        return say("{option} allocates {size}", **facts)
    return say("{option} {size}, too much", **facts)


def _guess_words(plan: Plan) -> str:
    where = moment_words(plan, plan.guesses[0])
    if len(plan.guesses) > 1:
        where = say("{place}, and {others}", place=where, others=count_words(len(plan.guesses) - 1, "other place"))
    return say("estimated in {where}: choices that depend on unknown values are spread evenly", where=where)


def moment_words(plan: Plan, moment: PlanMoment | None) -> str:
    """Which part of the step, which module, and its line; "" for a GPU that is not used."""
    if moment is None:
        return ""
    name, line, phase = _without_backticks(moment.module or ""), "", code_word(moment.phase)
    if moment.site:
        line = f" ({_without_backticks(site_words(moment.site))})"
    if moment.phase == "build":
        if name:
            return say("placing `{module}`", module=name)
        return say("placing the model")
    if moment.module is None and moment.phase == "optimizer":
        return say("the optimizer's step")
    if moment.module is None:
        return say("the {phase}", phase=phase) + line
    if plan.placement == "data parallel" and not (name or line):
        return say("what DataParallel copies in {phase}", phase=phase)
    module = f"`{name}`" if name else say("the model itself")
    return say("{module} in {phase}", module=module, phase=phase) + line


_RANK_SIZES = {
    "on_card": Message("on the card"),
    "reserved": Message("reserved"),
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
_OF_SOME = {
    "on_card": "reserved", "reserved": "reserved",
    "gathered": "most_gathered", "most_gathered": "most_gathered", "buckets": "buckets",
}  # fmt: skip
"""Columns of a card, or of one way to spread a model -> the attribute that is zero in all others."""


@shows(ParallelPlan)
def parallel_plan_parts(plan: ParallelPlan) -> Iterator[Part]:
    """The answer to `will it fit on so many ranks?`."""
    mesh = row_words([" x ".join(f"{name} {size}" for name, size in plan.mesh), *plan.ways, plan.card])
    answer = say("Plan: {model} on {mesh}: {answer}", model=plan.model, mesh=mesh, answer=fits_words(plan.fits))
    yield Sentence(answer, "verdict")
    names = [name for name in _RANK_SIZES if any(getattr(each, _OF_SOME.get(name, "peak")) for each in plan.ranks)]
    rows = [("", *(said(_RANK_SIZES[name]) for name in names), ""), *(_rank_row(each, names) for each in plan.ranks)]
    yield Table(rows, right=range(1, len(names) + 1))
    if "pp" not in dict(plan.mesh):  # there a schedule runs the step
        yield Sentence(" · ".join(loop_words(plan.loop)))
    for each in plan.ranks:
        yield from _rank_sentences(plan, each)


def _rank_sentences(plan: ParallelPlan, each: RankPlan) -> Iterator[Sentence]:
    ranks = ranks_words(each.ranks)
    if each.without:
        facts = {"ranks": ranks, "without": each.without, "parameters": count_words(plan.parameters, "parameter")}
        yield Sentence(say("{ranks} hold no part of {without} of {parameters}", **facts))
    if not each.fits:
        missing = format_bytes(each.on_card - each.capacity)
        yield Sentence(say("{ranks} need {size} more", ranks=ranks, size=missing) + _rank_moment(each), "over")


def _rank_row(each: RankPlan, names: list[str]) -> tuple[str, ...]:
    sizes = (format_bytes(getattr(each, name)) for name in names)
    return (ranks_words(each.ranks), *sizes, fits_words(each.fits))


def _rank_moment(each: RankPlan) -> str:
    if each.peak_at is None:
        return ""
    phase = code_word(each.peak_at.phase)
    if each.peak_at.module:
        return say(": the peak is in `{module}` in {phase}", module=each.peak_at.module, phase=phase)
    return say(": the peak is in {phase}", phase=phase)
