"""A plan as text: one row per GPU, then what does not fit and where it tips over."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records._record import presents
from devwidget.records.plan import DevicePlan, Plan, PlanMoment
from devwidget.report.columns import columns
from devwidget.report.units import format_bytes

_HEADER = ("", "peak", "capacity", "weights", "gradients", "optimizer", "activations", "")


@presents("text", Plan)
def plan_text(plan: Plan) -> str:
    """The answer to `will it fit?`."""
    return "\n".join(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    verdict = "fits" if plan.fits else "does not fit"
    yield f"Plan: {plan.model}, {plan.placement}: {verdict} · {', '.join(plan.phases)}"
    yield from columns([_HEADER, *map(_cells, plan.devices)], right=range(1, 7), indent="  ")
    for device in plan.devices:
        if device.tips_over is not None:
            over = format_bytes(device.peak - device.capacity)
            yield f"{device.device} needs {over} more: {_moment_words(device.tips_over)} is the first to exceed it"
    if plan.device_map:
        yield "device map"
        yield from columns([(path or "the whole model", device) for path, device in plan.device_map], indent="  ")


def _cells(device: DevicePlan) -> tuple[str, ...]:
    parts = (device.peak, device.capacity, device.weights, device.gradients, device.optimizer, device.activations)
    return (str(device.device), *map(format_bytes, parts), "fits" if device.fits else "does not fit")


def _moment_words(moment: PlanMoment) -> str:
    if moment.phase == "build":
        return "placing the model"
    if moment.module is None:
        return f"the {moment.phase}" if moment.phase != "optimizer" else "the optimizer's step"
    return f"`{moment.module}` in {moment.phase}" if moment.module else f"the model itself in {moment.phase}"
