"""What must hold between the fields of a watched run, and how the lines of its file become one."""

from __future__ import annotations

from devwidget.extras.watch.records.job import WatchedJob
from devwidget.extras.watch.records.run import COUNTED, FIRST, MEMORY, StepRows, WatchedRun, join_runs
from devwidget.records.loading.consistency import Wrong
from devwidget.records.loading.json_io import register_join
from devwidget.records.loading.typed_reader import register_check
from devwidget.records.schema.message import Message

register_join("WatchedRun", join_runs)


@register_check(StepRows)
def _check_columns(rows: StepRows) -> Wrong:
    """All columns have one number for each row, of 63 bits at most."""
    columns = {name: getattr(rows, name) for name in (FIRST, *COUNTED)}
    for at, memory in enumerate(rows.memory):
        columns |= {f"memory[{at}].{part}": getattr(memory, part) for part in MEMORY}
    for name, numbers in columns.items():
        if len(numbers) != len(rows):
            yield name, Message("one number for each row")
        elif max(numbers, default=0) >= 2**62:
            yield name, Message("numbers below 2**62")


@register_check(WatchedJob)
def _check_ranks(job: WatchedJob) -> Wrong:
    if len(job.ranks) != len(job.runs) or len(set(job.ranks)) != len(job.ranks):
        yield "ranks", Message("one for each run")


@register_check(WatchedRun)
def _check_first_steps(run: WatchedRun) -> Wrong:
    if len(run.first_steps) != len(run.findings):
        yield "first_steps", Message("one number for each finding")
