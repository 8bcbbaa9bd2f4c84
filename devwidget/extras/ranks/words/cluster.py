"""A cluster as text: ranks by state, distinct placements, unusual ranks, findings; a step of all ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from devwidget.extras.ranks.records.cluster import Cluster, Rank, State, group_by, numbers_of
from devwidget.extras.ranks.records.columns import Column, lay_out_columns
from devwidget.extras.ranks.records.rank import Collective, RankReport
from devwidget.extras.ranks.records.traced_steps import TracedJob
from devwidget.extras.ranks.views.job import group_alike
from devwidget.extras.ranks.views.meetings import CollectiveRow, Meeting, collective_rows, find_meetings, given_bytes
from devwidget.language.speaking import said, say
from devwidget.records.runs import runs_of
from devwidget.records.schema.record import presents
from devwidget.report.style.safe_text import safe_text, text_of
from devwidget.report.style.units import count_words, format_bytes, format_seconds
from devwidget.report.style.words import (
    align_columns,
    and_more,
    code_word,
    first_line,
    module_words,
    ranks_words,
    row_words,
    site_words,
)
from devwidget.report.text.draw_text import draw_lines
from devwidget.report.text.finding_text import finding_parts

_MOST_ROWS = 24


def _number_words(numbers: Iterable[int]) -> str:
    """Return `rank 3` or `ranks 0-7, 12`."""
    return ranks_words(runs_of(numbers))


def step_lines(job: TracedJob) -> Iterator[str]:
    """Yield the step below the headline of a cluster."""
    met = find_meetings(job)
    rows = collective_rows(met)
    yield f"  {step_headline(job, met)}"
    cells = []
    for row in rows[:_MOST_ROWS]:
        what = f"{row.count} x {row.kind}"
        cells.append((what, size_words(row), cause_words(row), group_words(row), site_words(row.site)))
    if cells:
        yield from align_columns(cells, right=(1,), indent="    ")
    if len(rows) > _MOST_ROWS:
        yield "    " + say("and {count} more", count=len(rows) - _MOST_ROWS)
    for row in rows:
        if row.meeting.difference:
            yield f"    {difference_words(row.meeting)}"


def step_headline(job: TracedJob, met: Iterable[Meeting]) -> str:
    """Return `one step of ranks 0-3: 12 collectives, 34 KiB per rank`."""
    count = sum(meeting.times for meeting in met)
    least, most = given_bytes(job)
    return say(
        "one step of {ranks}: {collectives}, {size} per rank",
        ranks=_number_words(rank.number for rank in job.ranks),
        collectives=count_words(count, "collective"),
        size=_span_words(least, most),
    )


def size_words(row: CollectiveRow) -> str:
    """Return the bytes that a rank passes to one of them."""
    return _span_words(row.least, row.most)


def _span_words(least: int, most: int) -> str:
    if least == most:
        return format_bytes(most)
    return say("{least} to {most}", least=format_bytes(least), most=format_bytes(most))


def cause_words(row: CollectiveRow) -> str:
    """Return the caller, the phase and the modules."""
    modules = [module_words(path) for path in row.modules if path is not None]
    if modules:
        named = say("for {modules}", modules=and_more(modules[0], len(modules) - 1))
    else:
        named = ""
    return row_words((row.by or say("your call"), code_word(row.phase), named))


def group_words(row: CollectiveRow) -> str:
    """Return `default_pg, ranks 0-3`, or the number of groups with that name."""
    (first, _), *_ = row.groups
    count = sum(times for _, times in row.groups)
    if count == 1:
        return row_words((first.label, _number_words(first.ranks)))
    return say("{count} groups {label} of {ranks}", count=count, label=first.label, ranks=count_words(len(first.ranks), "rank"))


def difference_words(meeting: Meeting) -> str:
    """Return what ranks of one collective disagree on; "" if nothing."""
    if not meeting.difference:
        return ""
    parts = []
    for kind, size, on in meeting.kinds or ((meeting.call.kind, 0, meeting.ranks),):
        what = kind
        if meeting.difference == "size":
            what = say("{kind} of {size}", kind=kind, size=format_bytes(size))
        parts.append(say("{kind} on {ranks}", kind=what, ranks=_number_words(on)))
    if meeting.missing:
        parts.append(say("none on {ranks}", ranks=_number_words(meeting.missing)))
    numbered = say("number {number} of group {group}", number=meeting.call.sequence, group=meeting.group.label)
    return f"{numbered}: {', '.join(parts)}"


_MOST_RANKS, _MOST_LINES, _MOST_RUNS = 16, 6, 4


@presents("text", Cluster)
def cluster_text(cluster: Cluster) -> str:
    """Return all ranks as text."""
    return text_of(_cluster_lines(cluster))


@presents("text", RankReport)
def report_text(report: RankReport) -> str:
    """Return one rank as text."""
    if report.model is not None:
        modules = len(report.model.modules)
    else:
        modules = 0
    told = say(
        "rank {rank} of {world_size} on {host}, process {pid}, {modules}",
        rank=report.rank,
        world_size=report.world_size,
        host=report.host,
        pid=report.pid,
        modules=count_words(modules, "module"),
    )
    return safe_text(told)


def _cluster_lines(cluster: Cluster) -> Iterator[str]:
    columns = lay_out_columns(cluster).each
    yield cluster_headline(cluster, len(columns))
    for column in columns:
        yield f"  {_number_words(column.ranks)}: {_column_words(column)}"
    if cluster.older:
        yield "  " + say("{ranks} of another job left files here", ranks=ranks_words(cluster.older))
    odd = group_alike(cluster)
    if odd:
        yield ""
        yield from align_columns([_alike_row(ranks) for ranks in odd[:_MOST_RANKS]], indent="  ")
    for ranks in odd[:_MOST_RANKS]:
        yield from _stack_lines(ranks)
    if len(odd) > _MOST_RANKS:
        yield "  " + say("and {count} more", count=sum(map(len, odd[_MOST_RANKS:])))
    if cluster.traced is not None:
        yield ""
        yield from step_lines(cluster.traced)
    for finding in cluster.findings:
        yield ""
        yield from draw_lines(finding_parts(finding))


def cluster_headline(cluster: Cluster, columns: int) -> str:
    """Return `4 ranks as dp 2 x tp 2 · 3 answered, 1 hung · 2 distinct placements`."""
    mesh = " x ".join(f"{axis.name} {axis.size}" for axis in cluster.axes)
    ranks = count_words(len(cluster.ranks), "rank")
    if math.prod(cluster.sizes) == len(cluster.ranks) and len(cluster.axes) > 1:
        ranks = say("{ranks} as {mesh}", ranks=ranks, mesh=mesh)
    states = []
    for state, those in ranks_by_state(cluster).items():
        states.append(say("{count} {state}", count=len(those), state=code_word(state)))
    return " · ".join((ranks, row_words(states), count_words(columns, "distinct placement")))


def ranks_by_state(cluster: Cluster) -> dict[State, list[Rank]]:
    """Group the ranks by state."""
    return group_by(cluster.ranks, lambda rank: rank.state)


def _column_words(column: Column) -> str:
    """Return `1.2 MiB in 36 tensors; Shard(0) on dp, none in 3`."""
    tensors = column.tensors
    kinds = list(dict.fromkeys(tensor.placement or say("plain") for tensor in tensors))
    held = say("{size} in {tensors}", size=format_bytes(column.bytes), tensors=count_words(len(tensors), "tensor"))
    return f"{held}; {' | '.join(kinds[:3])}"


def _alike_row(ranks: Sequence[Rank]) -> tuple[str, ...]:
    if ranks[0].step < 0:
        step = ""
    else:
        step = say("step {step}", step=ranks[0].step)
    return _alike_words(ranks), code_word(ranks[0].state), step, said(ranks[0].note)


def _alike_words(ranks: Sequence[Rank]) -> str:
    """Return `rank 3`, `ranks 0-7, 12`, or their number if they are scattered."""
    runs = runs_of(numbers_of(ranks))
    first = ranks_words(runs[:_MOST_RUNS])
    if len(runs) <= _MOST_RUNS:
        return first
    return say("{count} ranks, such as {ranks}", count=len(ranks), ranks=first)


def _stack_lines(ranks: Sequence[Rank]) -> Iterator[str]:
    """Yield where ranks are, or were at their last report, and the collective in which they wait."""
    rank = ranks[0]
    if rank.said.stack:
        yield f"  {_where_words(ranks)}"
        for site in rank.said.stack[-_MOST_LINES:]:
            yield f"    {site_words(site)}  {first_line(site)}"
    if rank.said.waits is not None and rank.state != "raised":
        yield f"  {_wait_words(ranks, rank.said.waits)}"


def _where_words(ranks: Sequence[Rank]) -> str:
    is_there = ranks[0].state not in ("dead", "stale", "raised", "terminated")
    if len(ranks) == 1:
        number = ranks[0].number
        if is_there:
            return say("rank {number} is at", number=number)
        return say("rank {number} was at", number=number)
    words = _alike_words(ranks)
    if is_there:
        return say("{ranks} are at", ranks=words)
    return say("{ranks} were at", ranks=words)


def _wait_words(ranks: Sequence[Rank], waits: Collective) -> str:
    where = say("{kind} number {number} of group {group}", kind=waits.kind, number=waits.sequence, group=waits.group)
    seconds = max(each.said.waits.seconds for each in ranks if each.said.waits is not None)
    words, time = _alike_words(ranks), format_seconds(seconds)
    match len(ranks) > 1, seconds > 0:
        case True, True:
            return say("{ranks} wait for up to {time} in {collective}", ranks=words, time=time, collective=where)
        case True, False:
            return say("{ranks} wait in {collective}", ranks=words, collective=where)
        case False, True:
            return say("rank {rank} waits for {time} in {collective}", rank=ranks[0].number, time=time, collective=where)
        case _:
            return say("rank {rank} waits in {collective}", rank=ranks[0].number, collective=where)
