"""Questions from the page: each is answered inside its handler, whatever thread that runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devwidget.records.errors import DevwidgetError
from devwidget.report.cards import row_detail
from devwidget.report.exports import export
from devwidget.ui.actions import TraceRequest

if TYPE_CHECKING:
    from devwidget.ui.panel import DeviceWidget

Message = dict[str, Any]


class Questions:
    """Answers one panel's questions. What goes wrong here is sent to the page, never lost."""

    def __init__(self, panel: DeviceWidget) -> None:
        self._panel = panel

    def on_message(self, control: Any, message: Message, buffers: Any) -> None:
        """Handle one message of the control widget."""
        try:
            answer = self._answer(message)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        control.send({"to": message.get("id"), "ask": message.get("ask"), **answer})

    def _answer(self, message: Message) -> Message:
        ask = message.get("ask")
        if ask == "hello":
            return {}
        if ask == "trace":
            return {"state": self._panel.jobs.submit(lambda: self._trace(_request(message)))}
        if ask == "cancel":
            return {"cancelled": self._panel.jobs.cancel()}
        if ask == "detail":
            return {"detail": self._detail(int(message["row"]))}
        if ask == "export":
            return export(self._panel.snapshot, self._panel.trace, str(message.get("form")))
        return {"error": f"unknown question {ask!r}"}

    def _trace(self, request: TraceRequest) -> None:
        try:
            self._panel.run_trace(request)
        except (DevwidgetError, KeyboardInterrupt):
            return  # shown in the status line
        except Exception:
            return  # likewise: a user's own exception, already in the status line

    def _detail(self, row: int) -> Message | None:
        snapshot, table = self._panel.snapshot, self._panel.table
        return row_detail(snapshot, table, row) if snapshot is not None and row < len(table) else None


def _request(message: Message) -> TraceRequest:
    texts = {name: str(message.get(name) or "").strip() for name in ("batch", "loss", "target")}
    return TraceRequest(**texts, heal=bool(message.get("heal", True)))
