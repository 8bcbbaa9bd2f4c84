"""A traced step of all ranks in words: how much each rank gives, and its collectives by line."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.ranks.runs import in_words, runs_of
from devwidget.records.ranks.traced import TracedJob
from devwidget.report.style.columns import columns
from devwidget.report.style.units import counted, format_bytes
from devwidget.report.style.words import and_more, module_words, site_words
from devwidget.views.ranks.meetings import Meeting, meetings
from devwidget.views.ranks.step_rows import CollectiveRow, collective_rows, given

_MOST_ROWS = 24


def step_lines(job: TracedJob) -> Iterator[str]:
    """The step below the headline of a cluster."""
    rows, _ = collective_rows(meetings(job))
    yield f"  {step_headline(job)}"
    cells = [
        (f"{row.count} x {row.kind}", size_words(row), cause_words(row), group_words(row), site_words(row.site)) for row in rows
    ]
    if cells:
        yield from columns(cells[:_MOST_ROWS], right=(1,), indent="    ")
    if len(rows) > _MOST_ROWS:
        yield f"    and {len(rows) - _MOST_ROWS} more"
    for row in rows:
        if row.meeting.difference:
            yield f"    {difference_words(row.meeting)}"


def step_headline(job: TracedJob) -> str:
    """`one step of ranks 0-3: 12 collectives, each rank gives 34 KiB`."""
    count = sum(meeting.times for meeting in meetings(job))
    least, most = given(job)
    size = format_bytes(least) if least == most else f"{format_bytes(least)} to {format_bytes(most)}"
    ranks = in_words(runs_of(rank.number for rank in job.ranks))
    return f"one step of {ranks}: {counted(count, 'collective')}, each rank gives {size}"


def size_words(row: CollectiveRow) -> str:
    """Bytes that a rank gives to one of them."""
    if row.least == row.most:
        return format_bytes(row.most)
    return f"{format_bytes(row.least)} to {format_bytes(row.most)}"


def cause_words(row: CollectiveRow) -> str:
    """Which part of torch asked, in which phase, for which modules."""
    modules = [module_words(path) for path in row.modules if path is not None]
    named = f"for {and_more(modules[0], len(modules) - 1)}" if modules else ""
    return ", ".join(filter(None, (row.by or "your call", row.phase, named)))


def group_words(row: CollectiveRow) -> str:
    """`default_pg, ranks 0-3`, or how many groups of a name."""
    (first, _), *_ = row.groups
    count = sum(times for _, times in row.groups)
    if count == 1:
        return f"{first.label}, {in_words(runs_of(first.ranks))}"
    return f"{count} groups {first.label} of {counted(len(first.ranks), 'rank')}"


def difference_words(meeting: Meeting) -> str:
    """What ranks of one collective do not agree on; "" if nothing."""
    if not meeting.difference:
        return ""
    sized = meeting.difference == "size"
    kinds = meeting.kinds or ((meeting.call.kind, 0, tuple(part.rank for part in meeting.parts)),)
    parts = [f"{kind}{f' of {format_bytes(size)}' if sized else ''} on {in_words(runs_of(on))}" for kind, size, on in kinds]
    parts += [f"none on {in_words(runs_of(meeting.missing))}"] if meeting.missing else []
    return f"number {meeting.call.sequence} of group {meeting.group.label}: {', '.join(parts)}"
