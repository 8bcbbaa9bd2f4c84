"""A traced step of all ranks in words: how much each rank gives, and its collectives by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from devwidget.language.speaking import say
from devwidget.records.ranks.runs import runs_of
from devwidget.records.ranks.traced import TracedJob
from devwidget.report.style.code_words import code_word
from devwidget.report.style.columns import columns
from devwidget.report.style.units import counted, format_bytes
from devwidget.report.style.words import and_more, module_words, ranks_words, row_words, site_words
from devwidget.views.ranks.meetings import Meeting, meetings
from devwidget.views.ranks.step_rows import CollectiveRow, collective_rows, given

_MOST_ROWS = 24


def step_lines(job: TracedJob) -> Iterator[str]:
    """The step below the headline of a cluster."""
    met = meetings(job)
    rows, _ = collective_rows(met)
    yield f"  {step_headline(job, met)}"
    cells = [
        (f"{row.count} x {row.kind}", size_words(row), cause_words(row), group_words(row), site_words(row.site)) for row in rows
    ]
    if cells:
        yield from columns(cells[:_MOST_ROWS], right=(1,), indent="    ")
    if len(rows) > _MOST_ROWS:
        yield "    " + say("and {count} more", count=len(rows) - _MOST_ROWS)
    for row in rows:
        if row.meeting.difference:
            yield f"    {difference_words(row.meeting)}"


def step_headline(job: TracedJob, met: Iterable[Meeting]) -> str:
    """`one step of ranks 0-3: 12 collectives, each rank gives 34 KiB`."""
    count = sum(meeting.times for meeting in met)
    least, most = given(job)
    return say(
        "one step of {ranks}: {collectives}, each rank gives {size}",
        ranks=ranks_words(runs_of(rank.number for rank in job.ranks)),
        collectives=counted(count, "collective"),
        size=_span(least, most),
    )


def size_words(row: CollectiveRow) -> str:
    """Bytes that a rank gives to one of them."""
    return _span(row.least, row.most)


def _span(least: int, most: int) -> str:
    if least == most:
        return format_bytes(most)
    return say("{least} to {most}", least=format_bytes(least), most=format_bytes(most))


def cause_words(row: CollectiveRow) -> str:
    """Which part of torch asked, in which phase, for which modules."""
    modules = [module_words(path) for path in row.modules if path is not None]
    named = say("for {modules}", modules=and_more(modules[0], len(modules) - 1)) if modules else ""
    return row_words((row.by or say("your call"), code_word(row.phase), named))


def group_words(row: CollectiveRow) -> str:
    """`default_pg, ranks 0-3`, or how many groups of a name."""
    (first, _), *_ = row.groups
    count = sum(times for _, times in row.groups)
    if count == 1:
        return row_words((first.label, ranks_words(runs_of(first.ranks))))
    return say("{count} groups {label} of {ranks}", count=count, label=first.label, ranks=counted(len(first.ranks), "rank"))


def difference_words(meeting: Meeting) -> str:
    """What ranks of one collective do not agree on; "" if nothing."""
    if not meeting.difference:
        return ""
    sized = meeting.difference == "size"
    kinds = meeting.kinds or ((meeting.call.kind, 0, tuple(part.rank for part in meeting.parts)),)
    parts = [
        say("{kind} of {size} on {ranks}", kind=kind, size=format_bytes(size), ranks=ranks_words(runs_of(on)))
        if sized
        else say("{kind} on {ranks}", kind=kind, ranks=ranks_words(runs_of(on)))
        for kind, size, on in kinds
    ]
    parts += [say("none on {ranks}", ranks=ranks_words(runs_of(meeting.missing)))] if meeting.missing else []
    numbered = say("number {number} of group {group}", number=meeting.call.sequence, group=meeting.group.label)
    return f"{numbered}: {', '.join(parts)}"
