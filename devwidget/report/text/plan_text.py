"""A plan as text: one row per GPU, then what does not fit and where it tips over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from devwidget.records.plan import DevicePlan, Plan, PlanMoment
from devwidget.records.schema.record import presents
from devwidget.report.style.columns import columns
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.units import counted, format_bytes
from devwidget.report.style.words import site_words

TOTALS = {"peak": "peak", "capacity": "capacity"}
"""Attribute of a GPU's plan -> its heading, where GPUs are nothing but a capacity."""
TOTALS_OF_CARD = {"on_card": "on the card", "reserved": "reserved", "peak": "allocated", "capacity": "capacity"}
PARTS = ("weights", "gradients", "optimizer", "activations")


@presents("text", Plan)
def plan_text(plan: Plan) -> str:
    """The answer to `will it fit?`."""
    return text_of(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    yield verdict(plan)
    totals = totals_of(plan)
    header = ("", *totals.values(), *PARTS, "")
    rows = [(str(device.device), *sizes(device, totals), _answer(device)) for device in plan.devices]
    yield from columns([header, *rows], right=range(1, len(header) - 1), indent="  ")
    for device in plan.devices:
        if device.tips_over is not None:
            yield tips_words(plan, device)
    if plan.card:
        yield band_words(plan)
    if plan.guesses:
        yield guess_words(plan)
    if plan.device_map:
        yield "device map"
        yield from columns([(path or "the whole model", device) for path, device in plan.device_map], indent="  ")


def verdict(plan: Plan) -> str:
    """The first line."""
    card = f" on {plan.card}" if plan.card else ""
    return f"Plan: {plan.model}, {plan.placement}{card}: {_answer(plan)} · {', '.join(plan.phases)}"


def _answer(plan: Plan | DevicePlan) -> str:
    return "fits" if plan.fits else "does not fit"


def totals_of(plan: Plan) -> Mapping[str, str]:
    """The attributes of a GPU's plan that are sums, with their headings."""
    return TOTALS_OF_CARD if plan.card else TOTALS


def sizes(device: DevicePlan, totals: Iterable[str]) -> list[str]:
    """The sums and the parts of the peak."""
    return [format_bytes(getattr(device, name)) for name in (*totals, *PARTS)]


def tips_words(plan: Plan, device: DevicePlan) -> str:
    """What does not fit, and what is the first to exceed it."""
    over = format_bytes(device.on_card - device.capacity)
    return f"{device.device} needs {over} more: {moment_words(plan, device.tips_over)} is the first to exceed it"


def band_words(plan: Plan) -> str:
    """How far the fullest GPU may be from what is predicted."""
    fullest = min(plan.devices, key=lambda device: device.capacity - device.on_card)
    least, most = map(format_bytes, fullest.on_card_band)
    close = "; the capacity is between" if fullest.is_close else ""
    return f"{fullest.device} may take {least} to {most}, as far as plans were off on real cards{close}"


def guess_words(plan: Plan) -> str:
    """Where the plan is a guess."""
    more = f", and {counted(len(plan.guesses) - 1, 'other place')}" if len(plan.guesses) > 1 else ""
    return f"guessed in {moment_words(plan, plan.guesses[0])}{more}: choices among unknown numbers are spread evenly"


def moment_words(plan: Plan, moment: PlanMoment | None) -> str:
    """Which part of the step, which module, and its line; "" for a GPU that is not used."""
    if moment is None:
        return ""
    line = f" ({site_words(moment.site)})" if moment.site else ""
    if moment.phase == "build":
        return f"placing `{moment.module}`" if moment.module else "placing the model"
    if moment.module is None:
        return f"the {moment.phase}{line}" if moment.phase != "optimizer" else "the optimizer's step"
    if plan.placement == "data parallel" and not moment.module and not moment.site:
        return f"what DataParallel copies in {moment.phase}"
    return f"`{moment.module}` in {moment.phase}{line}" if moment.module else f"the model itself in {moment.phase}{line}"
