"""The panel where no widget can run: text for terminals, a plain table for saved notebooks on GitHub and nbviewer."""

from __future__ import annotations

from devwidget.language.speaking import said, say
from devwidget.records.schema.message import Message
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.style.safe_text import Markup, element, together
from devwidget.report.style.units import counted, format_bytes, format_count
from devwidget.report.style.words import device_list, dtype_words
from devwidget.report.text.snapshot_text import bar_words, headline, shown_rows, snapshot_text, tree_heads, unicode_bar
from devwidget.report.text.trace_text import trace_blocks, trace_text
from devwidget.views.memory import memory_bars
from devwidget.views.placement import Placement, place

_MOST_ROWS = 50
GONE = Message("devwidget: the model was deleted before anything was read")


def panel_text(snapshot: Snapshot | None, trace: Trace | None) -> str:
    """The text report of a panel: where everything is, then the last trace."""
    if snapshot is None:
        return said(GONE)
    parts = [snapshot_text(snapshot, trace=trace), *([trace_text(trace)] if trace else [])]
    return "\n\n".join(parts)


def panel_html(snapshot: Snapshot | None, trace: Trace | None) -> str:
    """Plain HTML without style or script, which every viewer keeps: bars as text, what the last step did, a table."""
    if snapshot is None:
        return element("p", said(GONE))
    table = place(snapshot)
    bars = [
        _row("td", str(bar.device), element("code", unicode_bar(bar)), bar_words(bar))
        for bar in memory_bars(snapshot.memory, trace)
    ]
    blocks = map(_block, trace_blocks(trace)) if trace else ()
    parts = [element("p", element("b", headline(snapshot, table))), element("table", *bars) if bars else ""]
    return together(*parts, *blocks, _tree(table))


def saved_html(snapshot: Snapshot | None, trace: Trace | None) -> str:
    """The same as an output beside the live panel."""
    return as_saved(panel_html(snapshot, trace))


def as_saved(html: str) -> str:
    """For when the notebook is opened again and no kernel knows the panel."""
    note = element("p", element("em", say("The panel as it was saved; run the cell for the live one.")))
    style = Markup(f"<style>{_STYLE}</style>")  # viewers drop it, and need none of it
    return element("div", style, note, html, class_="dw-saved")


_STYLE = """
.jp-OutputArea-child:has(.dw-saved):has(+ .jp-OutputArea-child :is(.dw-panel, .lm-mod-hidden)),
.jp-OutputArea-child:has(.dw-saved) + .jp-OutputArea-child:has(> .jp-OutputArea-output.jupyter-widgets) { display: none }
"""
"""JupyterLab: only the live panel where there is one, nothing after it was closed, and no word of a widget that is gone."""


def _block(text: str) -> str:
    return element("pre", element("code", text))


def _tree(table: Placement) -> str:
    rows = shown_rows(table, _MOST_ROWS)
    head = _row("th", *tree_heads())
    body = element("tbody", *(_module_row(table, row) for row in rows))
    more = element("p", say("… and {rows} more", rows=counted(len(table) - len(rows), "row"))) if len(rows) < len(table) else ""
    return together(element("table", element("thead", head), body), more)


def _module_row(table: Placement, row: int) -> str:
    note = " · ".join(filter(None, (say("plain attribute") if table.tensors[row] else "", said(table.notes[row]))))
    return _row(
        "td",
        together(Markup("&nbsp;" * 3 * table.depths[row]), table.names[row]),
        table.classes[row],
        device_list(table.devices_of(row)),
        ", ".join(map(dtype_words, table.dtypes_of(row))),
        format_count(table.parameters[row]) if table.parameters[row] else "",
        format_bytes(table.bytes[row]) if table.bytes[row] else "",
        note,
    )


def _row(cell: str, *texts: str) -> str:
    left = {"align": "left", "style": "text-align:left"}  # GitHub keeps the one, nbconvert heeds the other; the indent needs it
    return element("tr", *(element(cell, text, **left) for text in texts))
