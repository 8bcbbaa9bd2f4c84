"""A record in every form that it has: texts, pages, cards, frames, files."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from devwidget.records.loading.json_io import dumps
from devwidget.records.schema.record import Record
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.page.content import detail_content
from devwidget.report.page.exports import export_panel
from devwidget.report.page.html import page_facts, panel_html, panel_text
from devwidget.views.placement import tabulate_snapshot

if TYPE_CHECKING:
    import pandas as pd

FRAMES = {
    "Snapshot": ("tensors", "modules", "memory"),
    "Trace": ("moves", "ops", "modules", "memory", "findings", "replicas"),
    "Plan": ("devices", "device_map"),
}


def texts(record: Record) -> Iterator[str]:
    """What a terminal shows."""
    yield str(record)
    yield record._repr_mimebundle_()["text/plain"]
    snapshot, trace = _panel(record)
    if snapshot is not None:
        yield panel_text(snapshot, trace)


def pages(record: Record, *, whole: bool = True) -> Iterator[str]:
    """HTML: what a notebook keeps, and with `whole` the standalone pages, which carry plotly.js."""
    bundle = record._repr_mimebundle_()
    if "text/html" in bundle:
        yield bundle["text/html"]
    snapshot, trace = _panel(record)
    if snapshot is not None:
        yield panel_html(snapshot, trace)
    if whole or snapshot is None:
        with contextlib.suppress(NotImplementedError):  # findings and explanations have no page
            yield record.to_html()


def cards(record: Record) -> Iterator[Any]:
    """What a page draws."""
    snapshot, trace = _panel(record)
    if snapshot is not None:
        table = tabulate_snapshot(snapshot)
        yield page_facts(snapshot, trace)
        yield [detail_content(snapshot, table, row) for row in range(min(len(table), 20))]


def frames(record: Record) -> Iterator[pd.DataFrame]:
    """Every table; their texts are as they are in the record."""
    for part in FRAMES.get(type(record).__name__, ()):
        yield record.to_frame(part)


def files(record: Record) -> Iterator[str]:
    """What is written to disk, but for the page."""
    yield dumps(record)
    snapshot, trace = _panel(record)
    if snapshot is not None:
        yield from (export_panel(snapshot, trace, form)["text"] for form in ("json", "trace", "csv", "text"))


def show_all(record: Record, *, whole: bool = False) -> None:
    """Raises what any of the forms raises."""
    for text in (*texts(record), *pages(record, whole=whole), *files(record)):
        text.encode("utf-8")
    for frame in frames(record):
        assert frame._repr_html_() is not None
    for card in cards(record):
        json.dumps(card, allow_nan=False)


def _panel(record: Record) -> tuple[Snapshot | None, Trace | None]:
    if isinstance(record, Snapshot):
        return record, None
    return (Snapshot(()), record) if isinstance(record, Trace) else (None, None)
