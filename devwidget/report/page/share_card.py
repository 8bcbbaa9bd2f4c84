"""The picture to share: what was found, on which line, its edit, and the model on its devices, as one SVG of 1200 x 630."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from devwidget.language.speaking import both, say, say_count
from devwidget.records.finding import Finding
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.figures.devices import WIDTHS, devices_height, draw_devices
from devwidget.report.style.palette import device_hue, draw_light, schemes_of
from devwidget.report.style.safe_text import Markup, html_element, join_html
from devwidget.report.style.units import format_bytes
from devwidget.report.style.words import code_word, first_line, module_words, row_words, site_words, translate_finding
from devwidget.report.text.finding_text import changed_lines
from devwidget.report.text.trace_text import summary_words
from devwidget.views.clock import with_real_times
from devwidget.views.devices import Picture, make_picture
from devwidget.views.memory import MemoryBar, memory_bars
from devwidget.views.placement import tabulate_snapshot

WIDTH, HEIGHT, MARGIN = 1200, 630, 56
HUES = {"error": "#b3201a", "warning": "#8a5a00", "info": "#41586f"}
INK, SOFT, GOOD, _LINE = "#1f2328", "#57606a", "#1b6e3c", "#d8dee4"
_FONTS = {"code": "ui-monospace, Menlo, Consolas, monospace", "": "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"}
LETTERS = {30: 60, 22: 80}
"""Letters of a size that fit in a line."""
_MOST_ROWS, _MOST_BARS = 5, 4
_LEGIBLE = 0.7
"""How small devices are drawn at most: letters of 12 pixels are read from 8 on."""
_BAR_LEFT, _BAR_WIDTH, _BAR_PITCH = 170, 660, 38


def share_card(snapshot: Snapshot, trace: Trace | None) -> str:
    """The picture, light on every page; without a trace it says what the model is and no more."""
    trace = trace if trace is not None else Trace()
    name = snapshot.modules[0].class_name if snapshot.modules else say("a step")
    said, bottom = _draw_finding(trace.findings[0]) if trace.findings else _draw_clean(trace)
    parts = *said, *_draw_devices(snapshot, trace, bottom + 24)
    return frame_card(name, summary_words(trace), _verdict_hue(trace), *parts)


def frame_card(name: str, more: str, hue: str, *drawn: Markup) -> str:
    """The SVG of a card: what it is about, an edge in the colour of its answer, and what is drawn below."""
    parts = [
        html_element("rect", width=str(WIDTH), height=str(HEIGHT), fill="#ffffff"),
        html_element("rect", width="12", height=str(HEIGHT), fill=hue),
        draw_card_text(name, MARGIN, 78, 36, INK, bold=True),
        draw_card_text(more, MARGIN, 112, 22, SOFT),
        draw_card_text("devwidget", WIDTH - MARGIN, 78, 22, SOFT, anchor="end"),
        *drawn,
    ]
    size = {"width": str(WIDTH), "height": str(HEIGHT), "viewBox": f"0 0 {WIDTH} {HEIGHT}"}
    return html_element("svg", *parts, xmlns="http://www.w3.org/2000/svg", **size) + "\n"


def _verdict_hue(trace: Trace) -> str:
    worst = trace.findings[0].severity if trace.findings else "error" if trace.error else None
    return HUES[worst] if worst else GOOD if trace.checked else _LINE


def _draw_devices(snapshot: Snapshot, trace: Trace, top: int) -> Iterator[Markup]:
    """The model on its devices, if it can be read in the room that is left; else how full the GPUs were."""
    picture = make_picture(snapshot, tabulate_snapshot(snapshot), with_real_times(trace))
    if (drawn := draw_columns(picture, top)) is not None:
        yield drawn
        return
    bars = [bar for bar in memory_bars(snapshot.memory, trace) if bar.known_total][:_MOST_BARS]
    yield from (_draw_bar(bar, HEIGHT - MARGIN - _BAR_PITCH * (len(bars) - 1 - at)) for at, bar in enumerate(bars))


def draw_columns(picture: Picture, top: int) -> Markup | None:
    """Blocks on their devices, from a line of the card to its end; None if nobody could read them there."""
    wide, tall = WIDTH - 2 * MARGIN, HEIGHT - MARGIN // 2 - top
    scales = {width: min(wide / width, tall / devices_height(picture, width)) for width in WIDTHS} if picture.columns else {}
    width = max(scales, key=lambda each: (scales[each], each), default=0)
    if scales.get(width, 0) < _LEGIBLE:
        return None
    place = {"x": str(MARGIN), "y": str(top), "width": str(wide), "height": str(tall)}
    place |= {"preserveAspectRatio": "xMinYMin", "style": f"font-family: {_FONTS['']}"}
    return draw_light(draw_devices(picture, width, **place))


def _draw_clean(trace: Trace) -> tuple[list[Markup], int]:
    """What a step without findings says, and the line on which it stands."""
    return [draw_card_text(_clean_words(trace), MARGIN, 186, 30, INK)], 186


def _clean_words(trace: Trace) -> str:
    if trace.error:
        return say("ended by {error}", error=trace.error.splitlines()[0])
    if not trace.checked:
        return say("nothing was checked")
    return say_count(*both("nothing found, {count} check", "nothing found, {count} checks"), len(trace.checked))


def _draw_finding(finding: Finding) -> tuple[list[Markup], int]:
    """What and where, then the rows of its edit, or the failing line and the cure in words; and the line of the last one."""
    finding, y, parts = translate_finding(finding), 186, list[Markup]()
    title = f"{code_word(finding.severity)}[{finding.kind}]  {finding.headline}".replace("`", "")
    for line in textwrap.wrap(title, LETTERS[30])[:3]:
        parts.append(draw_card_text(line, MARGIN, y, 30, INK, bold=True))
        y += 40
    parts.append(draw_card_text(row_words((module_words(finding.module), site_words(finding.fault))), MARGIN, y, 22, SOFT))
    fix = next(iter(finding.fixes), None)
    rows = [row for edit in fix.edits for row in changed_lines(edit)] if fix else []
    failing = [] if rows or not first_line(finding.fault) else [f"  {first_line(finding.fault)}"]
    cure = [f"+ {row}" for row in fix.code.splitlines()] if fix and not rows else []
    for line in [line for row in [*failing, *(rows or cure)] for line in _wrap_row(row)][:_MOST_ROWS]:
        y += 38
        parts += _draw_row(line, y)
    return parts, y


def _wrap_row(row: str) -> list[str]:
    return textwrap.wrap(row, LETTERS[22], subsequent_indent=f"{row[:1]}     ", drop_whitespace=False)


def _draw_row(row: str, y: int) -> Iterator[Markup]:
    """A line of code on a ground that says whether it goes or comes."""
    hue = {"-": HUES["error"], "+": GOOD}.get(row[0], INK)
    place = {"x": str(MARGIN), "y": str(y - 24), "width": str(WIDTH - 2 * MARGIN), "height": "34", "rx": "3"}
    yield html_element("rect", **place, fill=hue, **{"fill-opacity": "0.08"})
    yield draw_card_text(row, MARGIN + 12, y, 22, hue, font="code")


def _draw_bar(bar: MemoryBar, y: int) -> Markup:
    """A GPU to its end: filled as far as it was used, a tint up to its peak, what was refused behind its end."""
    hue, _ = schemes_of(device_hue(bar.device))
    reach = max(bar.total, bar.refused, 1)
    peak, used, total = (f"{_BAR_WIDTH * size / reach:.1f}" for size in (bar.peak, bar.used, bar.total))
    box = {"y": str(y - 18), "height": "22", "rx": "2"}
    end = _BAR_LEFT + _BAR_WIDTH * bar.total / reach
    label = say("{used} of {total}", used=format_bytes(max(bar.used, bar.peak)), total=format_bytes(bar.total))
    return join_html(
        draw_card_text(str(bar.device), MARGIN, y, 22, hue, bold=True),
        html_element("rect", x=str(_BAR_LEFT), width=peak, fill=hue, **box, **{"fill-opacity": "0.3"}),
        html_element("rect", x=str(_BAR_LEFT), width=used, fill=hue, **box),
        _draw_refused(bar, end, reach, box),
        html_element("rect", x=str(_BAR_LEFT), width=total, fill="none", stroke=SOFT, **box),
        draw_card_text(label, _BAR_LEFT + _BAR_WIDTH + 24, y, 22, SOFT),
    )


def _draw_refused(bar: MemoryBar, end: float, reach: int, box: dict[str, str]) -> Markup:
    if bar.refused <= bar.total:
        return Markup("")
    width = f"{_BAR_WIDTH * (bar.refused - bar.total) / reach:.1f}"
    looks = {"fill-opacity": "0.15", "stroke-dasharray": "4 3"}
    return html_element("rect", x=f"{end:.1f}", width=width, fill=HUES["error"], stroke=HUES["error"], **box, **looks)


def draw_card_text(
    text: str, x: int, y: int, size: int, hue: str, *, font: str = "", bold: bool = False, anchor: str = "start"
) -> Markup:
    """One line."""
    looks = {"font-family": _FONTS[font], "font-size": str(size), "font-weight": "600" if bold else "400"}
    return html_element("text", text, x=str(x), y=str(y), fill=hue, **looks, **{"text-anchor": anchor, "xml:space": "preserve"})
