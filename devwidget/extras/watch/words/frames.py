"""Watched runs as data frames."""

from __future__ import annotations

from devwidget.extras.watch.records.run import COUNTED, FIRST, MEMORY, WatchedRun
from devwidget.report.data_frames import Columns, finding_columns, frame


def _step_columns(run: WatchedRun) -> Columns:
    """Microseconds and bytes; a row has `count` steps."""
    columns: Columns = {name: list(getattr(run.steps, name)) for name in (FIRST, *COUNTED)}
    for memory in run.steps.memory:
        columns |= {f"{memory.device} {part}": list(getattr(memory, part)) for part in MEMORY}
    return columns


def _run_finding_columns(run: WatchedRun) -> Columns:
    return {"step": list(run.first_steps)} | finding_columns(run.findings)


frame(WatchedRun, {"steps": _step_columns, "findings": _run_finding_columns})
