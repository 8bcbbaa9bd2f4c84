"""A plan as HTML, without script: a bar for each GPU against its memory, what does not fit, and the figures."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from devwidget.records._record import presents
from devwidget.records.plan import DevicePlan, Plan
from devwidget.report.palette import CATEGORY_HUES
from devwidget.report.plan_text import guess_words, moment_words, tips_words, verdict
from devwidget.report.units import format_bytes

_PARTS = {"weights": "parameters", "gradients": "gradients", "optimizer": "optimizer", "activations": "activations"}
"""Part of a plan -> the category whose colour it has on every screen."""
_STYLE = """
.devwidget-plan { font: 13px/1.5 system-ui, sans-serif; max-width: 60em }
.devwidget-plan table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .6em 0 }
.devwidget-plan th, .devwidget-plan td { text-align: right; padding: .15em .7em; border: 0; background: none }
.devwidget-plan th:first-child, .devwidget-plan td:first-child, .devwidget-plan td:last-child { text-align: left }
.devwidget-plan .bar { position: relative; display: flex; height: 1.1em; margin: .15em 0 .5em }
.devwidget-plan .bar { background: rgba(128,128,128,.15) }
.devwidget-plan .limit { position: absolute; top: -.2em; bottom: -.2em; border-left: 2px solid currentColor }
.devwidget-plan .key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 .9em }
.devwidget-plan .over { color: #d1343b; font-weight: 600 }
"""


@presents("html", Plan)
def plan_page(plan: Plan) -> str:
    """One page that stands alone."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Plan: {escape(plan.model)}</title><style>:root {{ color-scheme: light dark }}</style></head>"
        f"<body>{plan_html(plan)}</body></html>\n"
    )


@presents("notebook", Plan)
def plan_html(plan: Plan) -> str:
    """What a notebook shows."""
    reach = max(max(device.capacity, device.peak) for device in plan.devices)
    keys = "".join(f'<span class="key" style="background: {_hue(part)}"></span>{part}' for part in _PARTS)
    problems = [f'<p class="over">{escape(tips_words(plan, device))}</p>' for device in plan.devices if device.tips_over]
    bars = "".join(_bar(device, reach) for device in plan.devices)
    guesses = [f"<p>{escape(guess_words(plan))}</p>"] if plan.guesses else []
    parts = (f"<p><b>{escape(verdict(plan))}</b></p>", bars, f"<p>{keys}</p>", *problems, _figures(plan), *guesses, _map(plan))
    return f'<style>{_STYLE}</style><div class="devwidget-plan">{"".join(parts)}</div>'


def _bar(device: DevicePlan, reach: int) -> str:
    over = "" if device.fits else ' class="over"'
    title = f"<span{over}>{device.device}: {format_bytes(device.peak)} of {format_bytes(device.capacity)}</span>"
    slices = "".join(
        f'<span style="width: {_percent(getattr(device, part), reach)}; background: {_hue(part)}"'
        f' title="{part} {format_bytes(getattr(device, part))}"></span>'
        for part in _PARTS
    )
    limit = f'<span class="limit" style="left: {_percent(device.capacity, reach)}" title="its memory"></span>'
    return f'{title}<div class="bar">{slices}{limit}</div>'


def _percent(size: int, reach: int) -> str:
    return f"{100 * size / reach:.2f}%"


def _hue(part: str) -> str:
    return CATEGORY_HUES[_PARTS[part]]


def _figures(plan: Plan) -> str:
    head = _row("th", ("", "peak", "capacity", *_PARTS, "the peak is in"))
    return f"<table><thead>{head}</thead><tbody>{''.join(_device(plan, device) for device in plan.devices)}</tbody></table>"


def _device(plan: Plan, device: DevicePlan) -> str:
    sizes = (format_bytes(getattr(device, name)) for name in ("peak", "capacity", *_PARTS))
    return _row("td", (str(device.device), *sizes, moment_words(plan, device.peak_at)))


def _map(plan: Plan) -> str:
    if not plan.device_map:
        return ""
    rows = "".join(_row("td", (path or "the whole model", device)) for path, device in plan.device_map)
    return f"<details><summary>device map</summary><table>{rows}</table></details>"


def _row(cell: str, texts: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{cell}>{escape(text)}</{cell}>" for text in texts) + "</tr>"
