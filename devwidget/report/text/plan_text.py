"""A plan as text: one row per GPU, then what does not fit and where it tips over."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.plan import DevicePlan, Plan, PlanMoment
from devwidget.records.schema.record import presents
from devwidget.report.style.columns import columns
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.units import counted, format_bytes
from devwidget.report.style.words import site_words

_HEADER = ("", "peak", "capacity", "weights", "gradients", "optimizer", "activations", "")


@presents("text", Plan)
def plan_text(plan: Plan) -> str:
    """The answer to `will it fit?`."""
    return text_of(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    yield verdict(plan)
    yield from columns([_HEADER, *map(_cells, plan.devices)], right=range(1, 7), indent="  ")
    for device in plan.devices:
        if device.tips_over is not None:
            yield tips_words(plan, device)
    if plan.guesses:
        yield guess_words(plan)
    if plan.device_map:
        yield "device map"
        yield from columns([(path or "the whole model", device) for path, device in plan.device_map], indent="  ")


def verdict(plan: Plan) -> str:
    """The first line."""
    return f"Plan: {plan.model}, {plan.placement}: {'fits' if plan.fits else 'does not fit'} · {', '.join(plan.phases)}"


def _cells(device: DevicePlan) -> tuple[str, ...]:
    parts = (device.peak, device.capacity, device.weights, device.gradients, device.optimizer, device.activations)
    return (str(device.device), *map(format_bytes, parts), "fits" if device.fits else "does not fit")


def tips_words(plan: Plan, device: DevicePlan) -> str:
    """What does not fit, and what is the first to exceed it."""
    over = format_bytes(device.peak - device.capacity)
    return f"{device.device} needs {over} more: {moment_words(plan, device.tips_over)} is the first to exceed it"


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
