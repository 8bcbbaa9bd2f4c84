"""The picture of a plan or a layout to share: its answer, what each GPU holds at the peak, as one SVG of 1200 x 630."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from devwidget.language.speaking import said, say
from devwidget.records.answers import Layout
from devwidget.records.evidence.compared import Fit
from devwidget.records.plan import DevicePlan, Plan
from devwidget.report.answers.plan import PARTS, part_hue
from devwidget.report.page.plan.draw_plan import size_words, verdict_words, where_words
from devwidget.report.page.plan.place import layout_words, spare_words
from devwidget.report.page.share_card import (
    GOOD,
    HUES,
    INK,
    LETTERS,
    MARGIN,
    SOFT,
    WIDTH,
    draw_card_text,
    draw_columns,
    frame_card,
)
from devwidget.report.style.palette import device_hue, schemes_of
from devwidget.report.style.safe_text import Markup, html_element
from devwidget.report.style.units import format_bytes
from devwidget.report.style.words import code_word, row_words
from devwidget.views.devices import propose_picture
from devwidget.views.placement import PlacementTable

_HUES: dict[Fit, str] = {"fits": GOOD, "fits by less": HUES["warning"], "does not fit": HUES["error"]}
_LEFT, _WIDE, _TALL, _PITCH, _MOST = 170, 720, 34, 56, 4
_CACHED, _CONTEXT = "#d0d7de", "#8c959f"
_KEYS_PER_LINE = 3


def plan_card(plan: Plan) -> str:
    """The picture, light on every page."""
    device = plan.tightest
    facts = row_words(filter(None, (say("planned"), size_words(plan), plan.card, *map(code_word, plan.phases))))
    lines = textwrap.wrap(verdict_words(plan, device).rstrip(":："), LETTERS[30])[:2]
    parts = [draw_card_text(line, MARGIN, 186 + 40 * at, 30, INK, bold=True) for at, line in enumerate(lines)]
    y = 186 + 40 * len(lines)
    parts.append(draw_card_text(where_words(plan, device).replace("`", ""), MARGIN, y, 22, SOFT))
    shown = sorted(sorted(plan.devices, key=_spare)[:_MOST], key=lambda each: each.device)
    reach = 1.02 * max(max(each.capacity, each.on_card) for each in shown)
    for each in shown:
        y += _PITCH
        parts += _draw_device(each, y, reach)
    parts += _draw_keys(device, y + 84)
    if plan.card:
        least, most = map(format_bytes, device.on_card_band)
        words = say("may take {least} to {most}, as far as plans were off on real cards", least=least, most=most)
        parts.append(draw_card_text(words, MARGIN, 596, 22, SOFT))
    return frame_card(plan.model, facts, _HUES[plan.fit], *parts)


def layout_card(layout: Layout) -> str:
    """The picture of a layout: its blocks on their GPUs, or, where they are too many to be read, how full those are."""
    facts = row_words((say("planned"), say("{count} blocks", count=len(layout.blocks))))
    parts = [draw_card_text(layout_words(layout).rstrip(":："), MARGIN, 186, 30, INK, bold=True)]
    parts.append(draw_card_text(spare_words(layout), MARGIN, 226, 22, SOFT))
    columns = draw_columns(propose_picture(layout, PlacementTable()), 256)
    parts += _draw_gpus(layout) if columns is None else [columns]
    return frame_card(layout.model, facts, _HUES[layout.fit], *parts)


def _draw_gpus(layout: Layout) -> Iterator[Markup]:
    reach = 1.02 * max(max(gpu.on_card, gpu.capacity) for gpu in layout.devices)
    for at, gpu in enumerate(layout.devices[:_MOST]):
        hue, _ = schemes_of(device_hue(gpu.device))
        yield from _draw_bar(str(gpu.device), 226 + _PITCH * (at + 1), [(hue, gpu.on_card)], gpu.capacity, reach)


def _spare(device: DevicePlan) -> int:
    return device.capacity - device.on_card


def _draw_device(device: DevicePlan, y: int, reach: float) -> Iterator[Markup]:
    return _draw_bar(str(device.device), y, list(_list_stretches(device)), device.capacity, reach)


def _draw_bar(name: str, y: int, stretches: Sequence[tuple[str, int]], capacity: int, reach: float) -> Iterator[Markup]:
    """A GPU up to its end; what is beyond it is in the colour of what is wrong."""
    yield draw_card_text(name, MARGIN, y + 25, 22, INK, bold=True)
    start = 0
    for hue, size in stretches:
        yield _draw_box(start, start + size, y, hue, reach)
        start += size
    if start > capacity:
        yield _draw_box(capacity, start, y, HUES["error"], reach)
    end = _LEFT + _WIDE * capacity / reach
    yield html_element("rect", x=f"{end - 1.5:.1f}", y=str(y - 6), width="3", height=str(_TALL + 12), fill=INK)
    told = say("{size} of {capacity}", size=format_bytes(start), capacity=format_bytes(capacity))
    yield draw_card_text(told, WIDTH - MARGIN, y + 25, 22, SOFT if start <= capacity else HUES["error"], anchor="end")


def _list_stretches(device: DevicePlan) -> Iterator[tuple[str, int]]:
    for part in PARTS:
        yield schemes_of(part_hue(part))[0], getattr(device, part)
    yield _CACHED, device.cached
    yield _CONTEXT, device.context


def _draw_box(start: float, stop: float, y: int, hue: str, reach: float) -> Markup:
    x, width = _LEFT + _WIDE * start / reach, _WIDE * (stop - start) / reach
    return html_element("rect", x=f"{x:.1f}", y=str(y), width=f"{width:.1f}", height=str(_TALL), fill=hue)


def _draw_keys(device: DevicePlan, y: int) -> Iterator[Markup]:
    """What the colours mean, with the sizes of the GPU that is told of."""
    names = [*map(said, PARTS.values()), say("cached"), say("CUDA's context")]
    keys = [(name, hue, size) for name, (hue, size) in zip(names, _list_stretches(device), strict=True) if size]
    for at, (name, hue, size) in enumerate(keys):
        x, line = MARGIN + 370 * (at % _KEYS_PER_LINE), y + 36 * (at // _KEYS_PER_LINE)
        yield html_element("rect", x=str(x), y=str(line - 16), width="18", height="18", rx="3", fill=hue)
        yield draw_card_text(f"{name} {format_bytes(size)}", x + 28, line, 22, INK)
