"""The panel's content as a file to keep: HTML, JSON, CSV or text."""

from __future__ import annotations

from collections.abc import Callable

from devwidget.language.speaking import say
from devwidget.records.loading.json_io import dumps
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.page.html import panel_page, panel_text
from devwidget.report.style.safe_text import file_name, spreadsheet_cell


def export_panel(snapshot: Snapshot | None, trace: Trace | None, form: str) -> dict[str, str]:
    """A file as `name`, `mime` and `text`; `error` without anything to export."""
    if snapshot is None:
        return {"error": say("there is nothing to export: the model was deleted")}
    ending, mime, write = _FORMS[form]
    if snapshot.modules:
        name = snapshot.modules[0].class_name
    else:
        name = "model"
    return {"name": f"{file_name(name)}-devices.{ending}", "mime": mime, "text": write(snapshot, trace)}


def _csv_text(snapshot: Snapshot, trace: Trace | None) -> str:
    return str(snapshot.to_frame("tensors").map(spreadsheet_cell).to_csv(index=False))


_FORMS: dict[str, tuple[str, str, Callable[[Snapshot, Trace | None], str]]] = {
    "html": ("html", "text/html", panel_page),
    "json": ("json", "application/json", lambda snapshot, trace: dumps(snapshot)),
    "trace": ("trace.json", "application/json", lambda snapshot, trace: dumps(trace if trace is not None else Trace())),
    "csv": ("csv", "text/csv", _csv_text),
    "text": ("txt", "text/plain", panel_text),
}
