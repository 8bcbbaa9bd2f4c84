"""Memory along a trace in words: the peak of each device, who made it, and what did not fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from devwidget.language.speaking import said, say
from devwidget.records.memory import Holding, MemoryCurve, MemoryPoint, Refusal
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.trace import Trace
from devwidget.report.report_parts import Part, Sentence
from devwidget.report.style.units import format_bytes
from devwidget.report.style.words import (
    code_word,
    first_line,
    module_words,
    modules_words,
    part_name,
    parts_words,
    row_words,
    site_words,
)
from devwidget.report.text.draw_text import line_table
from devwidget.views.hops import join_by_line
from devwidget.views.memory import MemorySeries, memory_series, point_parts
from devwidget.views.sums import total, values_once

Card = dict[str, Any]
_MOST_HOLDINGS = 4
_START = "import devwidget; devwidget.simulate(2).start()"  # works without the extension too
NO_ALLOCATOR = Message(
    "This trace has no memory curve: allocations are recorded on CUDA and on virtual GPUs only. Memory of the cpu is not"
    " counted, and tensors on meta hold no bytes. To see the step on virtual GPUs, run {line} and build the model again.",
    line=_START,
)
MODEL_ONLY = Message(
    "On the cpu only the tensors of the model and its optimizer are counted, at the end of each phase; temporaries and"
    " activations kept for backward are not, because the cpu has no allocator to ask. To count them on virtual GPUs, run"
    " {line} and build the model again.",
    line=_START,
)


def memory_cards(trace: Trace) -> Card:
    """The peaks as rows of a table, what did not fit, and what is not known."""
    cards: Card = {"peaks": [], "refused": [], "holdings": [], "notes": []}
    series = memory_series(trace)
    if not series:
        cards["notes"].append(said(NO_ALLOCATOR))
    elif _model_only(series):
        cards["notes"].append(said(MODEL_ONLY))
    for each in series:
        cards["peaks"].append(_peak_card(each))
        for refused in each.curve.refused[:3]:
            cards["refused"].append(refusal_words(each.curve, refused))
        for holding in each.curve.holdings[:_MOST_HOLDINGS]:
            cards["holdings"].append(holding_card(each.curve, holding))
    return cards


def _model_only(series: Iterable[MemorySeries]) -> bool:
    return any(each.curve.source == "model" for each in series)


def _peak_card(series: MemorySeries) -> Card:
    peak, capacity = series.peak, series.curve.total
    share = ""
    if capacity:
        share = row_words((format_bytes(capacity), _share_words(peak.allocated / capacity)))
    card = {"device": str(series.curve.device), "peak": format_bytes(peak.allocated), "of": share}
    return card | {"parts": parts_words(point_parts(peak)), **_where_card(peak)}


def holding_card(curve: MemoryCurve, holding: Holding) -> Card:
    """What one line had allocated, as a row of a table."""
    return {
        "device": str(curve.device),
        "bytes": format_bytes(holding.bytes),
        "role": _use_words([holding]),
        **_where_card(holding),
    }


def _use_words(holdings: Sequence[Holding]) -> str:
    """What bytes are for, and the names that the program gave them."""
    names = [f"`{name}`" for name in values_once(holdings, "name") if name]
    return row_words([*map(part_name, values_once(holdings, "role")), *names])


def _where_card(at: MemoryPoint | Holding) -> Card:
    return {"phase": code_word(at.phase)} | line_card([at.module], at.site)


def line_card(modules: Sequence[str | None], site: Site | None) -> Card:
    """The modules that ran, and the line."""
    return {"module": modules_words(modules), "path": modules[0], "place": site_words(site), "code": first_line(site)}


def _share_words(part: float) -> str:
    if part >= 0.01:
        return f"{100 * part:.0f} %"
    return "< 1 %"


def peak_words(series: MemorySeries) -> str:
    """One device's peak in one sentence, for screen readers."""
    return say(
        "{device} peaks at {size} {where}",
        device=series.curve.device,
        size=format_bytes(series.peak.allocated),
        where=_in_words(series.peak),
    )


def _in_words(at: MemoryPoint | Refusal) -> str:
    where = say("in {phase}", phase=code_word(at.phase))
    if at.module is not None:
        where = say("in {phase} of {module}", phase=code_word(at.phase), module=module_words(at.module))
    if at.site:
        where += f", {site_words(at.site)}"
    return where


def refusal_words(curve: MemoryCurve, refused: Refusal) -> str:
    """What did not fit, where."""
    others = curve.end.others
    missing = refused.allocated + refused.bytes + others - curve.total
    parts = [
        say(
            "{device} had no room for {size} {where}: {used} of {total} were in use",
            device=curve.device,
            size=format_bytes(refused.bytes),
            where=_in_words(refused),
            used=format_bytes(refused.allocated),
            total=format_bytes(curve.total),
        )
    ]
    if others:
        parts.append(say("{size} belonged to other processes and the driver", size=format_bytes(others)))
    if missing > 0:
        lack = say("{size} were missing", size=format_bytes(missing))
    else:
        lack = say("the rest was in smaller pieces")
    return row_words([*parts, lack])


def memory_parts(trace: Trace, *, with_lines: bool = True) -> Iterator[Part]:
    """Tables of memory, `with_lines` what was live at the peak, and what did not fit; nothing without an allocator to ask."""
    cards, series = memory_cards(trace), memory_series(trace)
    if not series or _model_only(series):
        return
    cells = itemgetter("device", "peak", "of", "phase", "module", "place", "parts")
    yield line_table(say("memory at its peak"), list(map(cells, cards["peaks"])), (1, 2))
    for text in (*cards["notes"], *cards["refused"]):
        yield Sentence(f"  {text}")
    fullest = max(series, key=lambda each: each.peak.allocated).curve
    if fullest.holdings and with_lines:
        title = say("live at the peak of {device}, by the line that allocated it", device=fullest.device)
        lines = join_by_line(fullest.holdings, lambda each: each.site or each)
        largest = sorted(lines, key=lambda line: -total(line, "bytes"))
        yield line_table(title, [(str(fullest.device), *_line_cells(line)) for line in largest], (1,))


def _line_cells(line: Sequence[Holding]) -> tuple[str, ...]:
    """What one line had allocated, in several modules, phases and roles."""
    return (
        format_bytes(total(line, "bytes")),
        _use_words(line),
        row_words(map(code_word, values_once(line, "phase"))),
        modules_words(values_once(line, "module")),
        site_words(line[0].site),
        first_line(line[0].site),
    )
