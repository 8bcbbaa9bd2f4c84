"""How sure a plan is: published figures next to their plans, as strips around a line where both are equal."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.plan.evidence.compared import Compared, find_band, list_compared
from devwidget.extras.plan.page.marks import draw_percent
from devwidget.extras.plan.page.step import draw_heading
from devwidget.language.speaking import said, say
from devwidget.records.schema.message import Message
from devwidget.report.style.safe_text import Markup, html_element, join_html
from devwidget.report.style.units import format_bytes

_KINDS = {
    "allocated": (Message("Allocated"), Message("max_memory_allocated, as it was published")),
    "reserved": (Message("Reserved"), Message("by the caching allocator")),
    "on the card": (Message("On the card"), Message("nvidia-smi; the context is in it")),
    "allocated by a rank": (Message("Allocated by a rank"), Message("of several, under DDP, ZeRO or FSDP")),
}
_REACH = 0.12
"""Half of what a strip shows, as a share."""
_NEAR = 0.02


def draw_trust(most_rows: int = 0) -> Markup:
    """Rows for each kind of figure, so many of each; to the left is planned too low, the unsafe side."""
    by_kind: dict[str, list[Compared]] = {kind: [] for kind in _KINDS}
    near = others = 0
    for row in list_compared():
        if not row.counts:
            others += 1
            continue
        by_kind[row.what].append(row)
        near += abs(row.off) <= _NEAR
    facts = {"near": near, "count": len(list_compared()) - others}
    more = say("{near} of {count} within 2 %: the grey; filled dots are inside; to the left is planned too low", **facts)
    strips = [_draw_head()]
    for kind, rows in by_kind.items():
        strips += _draw_kind(kind, rows, most_rows)
    heading = draw_heading(say("Planned against measured"), more)
    return join_html(heading, html_element("div", *strips, class_="dw-strips"), _draw_remarks(others))


def _draw_head() -> Markup:
    ends = map(_draw_cell, (f"−{_REACH:.0%}", "0", f"+{_REACH:.0%}"))
    axis = html_element("span", *ends, class_="dw-strip-ends")
    heads = map(_draw_cell, (say("measured"), say("planned"), say("off")))
    return html_element("div", _draw_cell(say("published")), axis, *heads, class_="dw-strip dw-strip-head")


def _draw_cell(words: str) -> Markup:
    return html_element("span", words)


def _draw_kind(kind: str, rows: list[Compared], most: int) -> Iterator[Markup]:
    band = find_band(kind)
    off = say("a card took up to {less} less and {more} more than planned", less=f"{band.less:.1%}", more=f"{band.more:.1%}")
    name, what = _KINDS[kind]
    yield html_element("p", html_element("b", said(name)), f" {said(what)}; {off}", class_="dw-group")
    farthest = sorted(rows, key=lambda row: -abs(row.off))[: most or len(rows)]
    yield from (_draw_row(row) for row in rows if row in farthest)
    if len(farthest) < len(rows):
        yield html_element("p", say("{count} more are closer", count=len(rows) - len(farthest)))


def _draw_row(row: Compared) -> Markup:
    at = 0.5 + max(min(row.off, _REACH), -_REACH) / (2 * _REACH)
    band = f"left:{draw_percent(0.5 - _NEAR / (2 * _REACH))};width:{draw_percent(_NEAR / _REACH)}"
    stem = f"left:{draw_percent(min(at, 0.5))};width:{draw_percent(abs(at - 0.5))}"
    look = "dw-point" if abs(row.off) <= _NEAR else "dw-point dw-outside"
    marks = (
        html_element("i", class_="dw-band", style=band),
        html_element("i", class_="dw-zero", style="left:50%"),
        html_element("i", class_="dw-stem", style=stem),
        html_element("i", class_=look, style=f"left:{draw_percent(at)}"),
    )
    line = html_element("span", *marks, class_="dw-line-of", **{"aria-hidden": "true"})
    cells = format_bytes(row.most), format_bytes(row.planned), f"{row.off:+z.1%}".replace("-", "−")
    name = html_element("span", row.workload, title=row.workload)
    return html_element("div", name, line, *map(_draw_cell, cells), class_="dw-strip")


def _draw_remarks(others: int) -> Markup:
    words = say(
        "Allocated is counted, and close; reserved follows the rules of the allocator; on the card the context and other "
        "processes come on top, which no plan knows. Sources and causes: benchmarks/results/plans.md."
    )
    if others:
        words += " " + say("Left out here: {count} rows of another program than the one that was planned.", count=others)
    return html_element("p", html_element("b", say("What this is not.")), f" {words}")
