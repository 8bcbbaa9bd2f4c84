"""How sure a plan is: published figures next to their plans, as strips around a line where both are equal."""

from __future__ import annotations

from devwidget.extras.plan.evidence.compared import Compared, find_band, list_compared
from devwidget.extras.plan.page.marks import draw, draw_percent
from devwidget.language.speaking import said, say
from devwidget.records.schema.message import Message
from devwidget.report.style.safe_text import Markup, join_html
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
    ends = f"−{_REACH:.0%}", "0", f"+{_REACH:.0%}"
    strips = draw("strips", ends, [_describe_kind(kind, rows, most_rows) for kind, rows in by_kind.items()])
    heading = draw("heading", say("Planned against measured"), more)
    return join_html(heading, strips, draw("remark", say("What this is not."), _remark_words(others)))


def _describe_kind(kind: str, rows: list[Compared], most: int) -> tuple[object, ...]:
    band = find_band(kind)
    off = say("a card took up to {less} less and {more} more than planned", less=f"{band.less:.1%}", more=f"{band.more:.1%}")
    name, what = _KINDS[kind]
    farthest = sorted(rows, key=lambda row: -abs(row.off))[: most or len(rows)]
    left, closer = len(rows) - len(farthest), ""
    if left:
        closer = say("{count} more are closer", count=left)
    return said(name), f" {said(what)}; {off}", [_describe_row(row) for row in rows if row in farthest], closer


def _describe_row(row: Compared) -> tuple[object, ...]:
    at = 0.5 + max(min(row.off, _REACH), -_REACH) / (2 * _REACH)
    marks = (
        ("dw-band", f"left:{draw_percent(0.5 - _NEAR / (2 * _REACH))};width:{draw_percent(_NEAR / _REACH)}"),
        ("dw-zero", "left:50%"),
        ("dw-stem", f"left:{draw_percent(min(at, 0.5))};width:{draw_percent(abs(at - 0.5))}"),
        ("dw-point" if abs(row.off) <= _NEAR else "dw-point dw-outside", f"left:{draw_percent(at)}"),
    )
    return row.workload, marks, (format_bytes(row.most), format_bytes(row.planned), f"{row.off:+z.1%}".replace("-", "−"))


def _remark_words(others: int) -> str:
    words = say(
        "Allocated is counted, and close; reserved follows the rules of the allocator; on the card the context and other "
        "processes come on top, which no plan knows. Sources and causes: benchmarks/results/plans.md."
    )
    if others:
        words += " " + say("Left out here: {count} rows of another program than the one that was planned.", count=others)
    return f" {words}"
