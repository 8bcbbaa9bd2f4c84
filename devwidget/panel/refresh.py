"""Update panels after each cell, and sample memory while a long cell runs."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from devwidget.records.site import find_shell

if TYPE_CHECKING:
    from devwidget.panel.panel import DeviceWidget

SAMPLE_SECONDS = 1.0
"""Seconds between two samples, and before the first sample of a cell."""

# Weak: to be kept up to date does not keep a panel, or a shell that a test or an embedding program has made, alive.
_panels: weakref.WeakSet[DeviceWidget] = weakref.WeakSet()
_shells: weakref.WeakSet[Any] = weakref.WeakSet()
_cell_ended: list[threading.Event] = []


def watch_panel(panel: DeviceWidget) -> None:
    """Update a panel after each cell from now on, in IPython."""
    _panels.add(panel)
    shell = find_shell()
    if shell is not None and shell not in _shells:
        # not pre_execute and post_execute: those fire on every comm message, on other threads too
        shell.events.register("pre_run_cell", _before_cell)
        shell.events.register("post_run_cell", _after_cell)
        _shells.add(shell)


def forget_panel(panel: DeviceWidget) -> None:
    """Stop updating a panel."""
    _panels.discard(panel)


def stop_watching(shell: Any) -> None:
    """Remove the callbacks from a shell."""
    if shell in _shells:
        _shells.discard(shell)
        shell.events.unregister("pre_run_cell", _before_cell)
        shell.events.unregister("post_run_cell", _after_cell)


def _before_cell(info: Any = None) -> None:
    if threading.current_thread() is not threading.main_thread() or not _shown_panels():
        return
    ended = threading.Event()
    _cell_ended.append(ended)
    threading.Thread(target=_sample_memory, args=(ended,), name="devwidget-memory", daemon=True).start()


def _after_cell(result: Any = None) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    while _cell_ended:
        _cell_ended.pop().set()
    info, panels = getattr(result, "info", None), list(_panels)
    raw, cell = getattr(info, "raw_cell", ""), getattr(info, "cell_id", None) or ""
    new = [panel for panel in panels if panel.follow_name(cell)]
    for panel in panels:
        for successor in new:
            if panel.is_replaced_by(successor):
                successor.take_over(panel)
    succeeded, number = bool(getattr(result, "success", False)), getattr(result, "execution_count", None) or 0
    for panel in panels:
        panel.after_cell(raw, succeeded, number, is_new=panel in new)


def _shown_panels() -> list[DeviceWidget]:
    return [panel for panel in _panels if panel.is_shown]


def _sample_memory(ended: threading.Event) -> None:
    """Sample on the thread of one cell; stops with the cell, or at the first failure."""
    while not ended.wait(SAMPLE_SECONDS):
        for panel in _shown_panels():
            if not panel.sample_memory():
                return
