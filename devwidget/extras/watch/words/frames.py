"""Watched runs as data frames."""

from __future__ import annotations

from devwidget.extras.watch.records.run import WatchedRun
from devwidget.report.data_frames import Columns, finding_columns, frame


def _step_columns(run: WatchedRun) -> Columns:
    return {name: list(numbers) for name, numbers in run.steps.columns.items()}


frame(
    WatchedRun,
    {"steps": _step_columns, "findings": lambda run: {"step": list(run.first_steps)} | finding_columns(run.findings)},
)
