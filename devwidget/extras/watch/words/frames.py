"""Watched runs as data frames."""

from __future__ import annotations

from devwidget.extras.watch.records.run import WatchedRun
from devwidget.report.data_frames import Columns, finding_columns, frame


def _step_columns(run: WatchedRun) -> Columns:
    """Return microseconds and bytes; a row has `count` steps."""
    return {name: list(numbers) for name, numbers in run.steps.columns.items()}


def _run_finding_columns(run: WatchedRun) -> Columns:
    return {"step": list(run.first_steps)} | finding_columns(run.findings)


frame(WatchedRun, {"steps": _step_columns, "findings": _run_finding_columns})
