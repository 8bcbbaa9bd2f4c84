"""Check the fields of a watched run, and join the lines of its file."""

from __future__ import annotations

from devwidget.extras.watch.records.run import StepRows, WatchedRun, join_runs
from devwidget.records.loading.consistency import Wrong
from devwidget.records.loading.json_io import register_join
from devwidget.records.loading.typed_reader import register_check
from devwidget.records.schema.message import Message

register_join("WatchedRun", join_runs)


@register_check(StepRows)
def _check_columns(rows: StepRows) -> Wrong:
    for name, numbers in rows.columns.items():
        if len(numbers) != len(rows):
            yield name, Message("one number for each row")
        elif max(numbers, default=0) >= 2**62:
            yield name, Message("numbers below 2**62")


@register_check(WatchedRun)
def _check_first_steps(run: WatchedRun) -> Wrong:
    if len(run.first_steps) != len(run.findings):
        yield "first_steps", Message("one number for each finding")
