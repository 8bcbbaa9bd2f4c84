"""A panel over hand-made records, for notebooks of browser tests: no torch, no model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from devwidget.panel.actions import PanelActions, TraceRequest
from devwidget.panel.panel import DeviceWidget
from devwidget.records.errors import BatchError
from devwidget.records.trace import Trace
from tests.views.builders import one_step, split_model


class Fake:
    """Actions that remember what they were asked; `gone` makes the model disappear."""

    def __init__(self) -> None:
        self.gone = False
        self.requests: list[TraceRequest] = []
        self.threads: list[str] = []
        self.record = split_model()

    def snapshot(self):
        return None if self.gone else self.record

    def trace(self, request: TraceRequest, progress: Callable[[str], None]) -> Trace:
        import threading

        self.requests.append(request)
        self.threads.append(threading.current_thread().name)
        if request.batch == "missing":
            raise BatchError("`missing` is not defined", why="<img src=x onerror=alert(1)>", instead="batch")
        progress("forward …")
        if request.batch == "slow":
            for _ in range(100):
                time.sleep(0.1)
        return one_step()

    def names(self) -> tuple[str, ...]:
        return ("batch", "images")

    def memory(self):
        first, *rest = self.record.memory
        return (replace(first, activations=first.activations * 3, free=first.free - 2 * first.activations), *rest)

    def actions(self) -> PanelActions:
        return PanelActions(self.snapshot, self.trace, self.names, self.memory, TraceRequest(batch="batch"))


def open_panel() -> tuple[DeviceWidget, Fake]:
    """A panel and the fake behind it."""
    fake = Fake()
    return DeviceWidget(fake.actions()), fake
