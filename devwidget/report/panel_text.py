"""The panel where no widget can run: text for terminals, a plain table for saved notebooks on GitHub and nbviewer."""

from __future__ import annotations

from html import escape

from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.finding_text import finding_text
from devwidget.report.memory_words import memory_lines
from devwidget.report.snapshot_text import bar_words, headline, shown_rows, snapshot_text, unicode_bar
from devwidget.report.trace_text import trace_text
from devwidget.report.units import counted, format_bytes, format_count
from devwidget.report.words import device_list, dtype_words
from devwidget.views.memory import memory_bars
from devwidget.views.placement import Placement, place

_MOST_ROWS = 50
GONE = "devwidget: the model was deleted before anything was read"


def panel_text(snapshot: Snapshot | None, trace: Trace | None) -> str:
    """The text report of a panel: where everything is, then the last trace."""
    if snapshot is None:
        return GONE
    parts = [snapshot_text(snapshot, trace=trace), *([trace_text(trace)] if trace else [])]
    return "\n\n".join(parts)


def panel_html(snapshot: Snapshot | None, trace: Trace | None) -> str:
    """Plain HTML without style or script, which every viewer keeps: bars as text, a table, the findings."""
    if snapshot is None:
        return f"<p>{GONE}</p>"
    table = place(snapshot)
    bars = [
        _row("td", str(bar.device), f"<code>{unicode_bar(bar)}</code>", bar_words(bar))
        for bar in memory_bars(snapshot.memory, trace)
    ]
    parts = [f"<p><b>{escape(headline(snapshot, table))}</b></p>", f"<table>{''.join(bars)}</table>" if bars else ""]
    findings = [f"<pre><code>{escape(finding_text(finding))}</code></pre>" for finding in (trace.findings if trace else ())]
    memory = "\n".join(memory_lines(trace)) if trace else ""
    return "".join([*parts, *findings, f"<pre><code>{escape(memory)}</code></pre>" if memory else "", _tree(table)])


def _tree(table: Placement) -> str:
    rows = shown_rows(table, _MOST_ROWS)
    head = _row("th", "module", "class", "device", "dtype", "parameters", "bytes", "")
    body = "".join(_module_row(table, row) for row in rows)
    more = f"<p>… and {counted(len(table) - len(rows), 'row')} more</p>" if len(rows) < len(table) else ""
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>{more}"


def _module_row(table: Placement, row: int) -> str:
    note = " · ".join(filter(None, ("plain attribute" if table.tensors[row] else "", table.notes[row])))
    return _row(
        "td",
        "&nbsp;" * 3 * table.depths[row] + escape(table.names[row]),
        escape(table.classes[row]),
        escape(device_list(table.devices_of(row))),
        escape(", ".join(map(dtype_words, table.dtypes_of(row)))),
        format_count(table.parameters[row]) if table.parameters[row] else "",
        format_bytes(table.bytes[row]) if table.bytes[row] else "",
        escape(note),
    )


def _row(cell: str, *texts: str) -> str:
    left = 'align="left" style="text-align:left"'  # GitHub keeps the one, nbconvert heeds the other; the indent needs it
    return "<tr>" + "".join(f"<{cell} {left}>{text}</{cell}>" for text in texts) + "</tr>"
