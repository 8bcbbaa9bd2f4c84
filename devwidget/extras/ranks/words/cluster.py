"""A cluster as text and as data frames: ranks by state, placements, unusual ranks, findings; a step of all ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from devwidget.extras.ranks.records.cluster import NOWHERE, Cluster, Rank, State, group_by, numbers_of
from devwidget.extras.ranks.records.columns import Column, lay_out_columns
from devwidget.extras.ranks.records.rank import Collective, RankReport
from devwidget.extras.ranks.records.traced_steps import TracedJob
from devwidget.extras.ranks.views.job import ORDERLY, find_age, group_alike
from devwidget.extras.ranks.views.meetings import Meeting, collective_rows, find_meetings, given_bytes, row_kind
from devwidget.language.speaking import said, say
from devwidget.records.runs import runs_of
from devwidget.records.schema.record import presents
from devwidget.report.data_frames import Columns, attribute_columns, frame
from devwidget.report.style.safe_text import safe_text, text_of
from devwidget.report.style.units import count_words, format_bytes, format_seconds
from devwidget.report.style.words import (
    align_columns,
    code_word,
    cut_line,
    first_line,
    label_line,
    modules_words,
    ranks_words,
    row_words,
    site_words,
    translate_finding,
)
from devwidget.report.text.draw_text import draw_lines
from devwidget.report.text.finding_text import finding_parts
from devwidget.views.sums import total, values_once

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
        kind, count, size, cause, groups, site, *_ = row_cells(row)
        cells.append((f"{count} x {kind}", size, cause, groups, site))
    if cells:
        yield from align_columns(cells, right=(1,), indent="    ")
    if len(rows) > _MOST_ROWS:
        yield f"    and {len(rows) - _MOST_ROWS} more"
    for meeting, *_ in rows:
        if meeting.difference:
            yield f"    {difference_words(meeting)}"


def step_headline(job: TracedJob, met: Iterable[Meeting]) -> str:
    """Return `one step of ranks 0-3: 12 collectives, 34 KiB per rank`."""
    ranks, calls = _number_words(map(attrgetter("number"), job.ranks)), count_words(total(met, "times"), "collective")
    return f"one step of {ranks}: {calls}, {span_words(*given_bytes(job))} per rank"


def span_words(least: int, most: int) -> str:
    """Return `34 KiB`, or `1 KiB to 34 KiB`."""
    if least == most:
        return format_bytes(most)
    return f"{format_bytes(least)} to {format_bytes(most)}"


def time_words(seconds: float, before: str = "") -> str:
    """Return ` for 3.0 s` with ` for ` before; "" if the time is unknown."""
    if not seconds:
        return ""
    return f"{before}{format_seconds(seconds)}"


def row_cells(row: Sequence[Meeting]) -> list[Any]:
    """Return kind, number, bytes that a rank passes, cause, groups, place, code and what ranks disagree on."""
    first, call, group = row[0], row[0].call, row[0].group
    sizes, named = values_once(row, "call.bytes"), ""
    paths = [path for path in values_once(row, "call.module") if path is not None]
    if paths:
        named = f"for {modules_words(paths)}"
    cause = row_words((call.by or "your call", code_word(call.phase), named))
    count = sum(times for _, times in {(meeting.group, meeting.times) for meeting in row})
    groups = row_words((group.label, _number_words(group.ranks)))
    if count > 1:
        groups = f"{count} groups {group.label} of {count_words(len(group.ranks), 'rank')}"
    what = [row_kind(call), total(row, "times"), span_words(min(sizes), max(sizes))]
    return [*what, cause, groups, site_words(call.site), first_line(call.site), difference_words(first)]


def difference_words(meeting: Meeting) -> str:
    """Return what ranks of one collective disagree on; "" if nothing."""
    if not meeting.difference:
        return ""
    parts = []
    for kind, size, on in meeting.kinds or ((meeting.call.kind, 0, meeting.ranks),):
        if meeting.difference == "size":
            kind = f"{kind} of {format_bytes(size)}"
        parts.append(f"{kind} on {_number_words(on)}")
    if meeting.missing:
        parts.append(f"none on {_number_words(meeting.missing)}")
    return f"number {meeting.call.sequence} of group {meeting.group.label}: {', '.join(parts)}"


_MOST_RANKS, _MOST_LINES, _MOST_RUNS = 16, 6, 4
_NOT_THERE = frozenset({"dead", "stale", "raised", "terminated"})
_VERBS = (("is", "was", "waits", " for "), ("are", "were", "wait", " for up to "))
"""For one rank, and for several."""


@presents("text", Cluster)
def cluster_text(cluster: Cluster) -> str:
    """Return all ranks as text."""
    return text_of(_cluster_lines(cluster))


@presents("text", RankReport)
def report_text(report: RankReport) -> str:
    """Return one rank as text."""
    modules = count_words(len(report.model.modules) if report.model is not None else 0, "module")
    return safe_text(f"rank {report.rank} of {report.world_size} on {report.host}, process {report.pid}, {modules}")


def _cluster_lines(cluster: Cluster) -> Iterator[str]:
    columns = lay_out_columns(cluster).each
    yield cluster_headline(cluster, len(columns))
    for column in columns:
        yield f"  {_number_words(column.ranks)}: {_column_words(column)}"
    if cluster.older:
        yield f"  {ranks_words(cluster.older)} of another job left files here"
    odd = group_alike(cluster)
    if odd:
        yield ""
        yield from align_columns(list(map(_alike_row, odd[:_MOST_RANKS])), indent="  ")
    for ranks in odd[:_MOST_RANKS]:
        yield from _stack_lines(ranks)
    if len(odd) > _MOST_RANKS:
        yield f"  and {sum(map(len, odd[_MOST_RANKS:]))} more"
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
        ranks = f"{ranks} as {mesh}"
    states = []
    for state, those in ranks_by_state(cluster).items():
        states.append(f"{len(those)} {code_word(state)}")
    return " · ".join((ranks, row_words(states), count_words(columns, "distinct placement")))


def ranks_by_state(cluster: Cluster) -> dict[State, list[Rank]]:
    """Group the ranks by state."""
    return group_by(cluster.ranks, lambda rank: rank.state)


def _column_words(column: Column) -> str:
    """Return `1.2 MiB in 36 tensors; Shard(0) on dp, none in 3`."""
    tensors = column.tensors
    kinds = list(dict.fromkeys(tensor.placement or "plain" for tensor in tensors))
    return f"{format_bytes(column.bytes)} in {count_words(len(tensors), 'tensor')}; {' | '.join(kinds[:3])}"


def _alike_row(ranks: Sequence[Rank]) -> tuple[str, ...]:
    rank = ranks[0]
    step = f"step {rank.step}" if rank.step >= 0 else ""
    return _alike_words(ranks), code_word(rank.state), step, said(rank.note)


def _alike_words(ranks: Sequence[Rank]) -> str:
    """Return `rank 3`, `ranks 0-7, 12`, or their number if they are scattered."""
    runs = runs_of(numbers_of(ranks))
    first = ranks_words(runs[:_MOST_RUNS])
    if len(runs) <= _MOST_RUNS:
        return first
    return f"{len(ranks)} ranks, such as {first}"


def _stack_lines(ranks: Sequence[Rank]) -> Iterator[str]:
    """Yield where ranks are, or were at their last report, and the collective in which they wait."""
    rank, who = ranks[0], _alike_words(ranks)
    are, were, wait, waiting = _VERBS[len(ranks) > 1]
    if rank.state in _NOT_THERE:
        are = were
    if rank.said.stack:
        yield f"  {who} {are} at"
        for site in rank.said.stack[-_MOST_LINES:]:
            yield f"    {site_words(site)}  {first_line(site)}"
    if rank.said.waits is not None and rank.state != "raised":
        seconds = max(each.said.waits.seconds for each in ranks if each.said.waits is not None)
        yield f"  {who} {wait}{time_words(seconds, waiting)} in {collective_words(rank.said.waits)}"


def collective_words(collective: Collective) -> str:
    """Return `all_reduce number 7 of group dp`."""
    what = f"{collective.kind or 'collective'} number {collective.sequence}"
    if collective.group:
        return f"{what} of group {collective.group}"
    return what


def _of_all_ranks(cluster: Cluster) -> Columns:
    """Return collectives of all ranks; one stands for groups whose ranks did the same, with their number."""
    met = find_meetings(cluster.traced)
    calls = list(map(attrgetter("call"), met))
    columns = attribute_columns(calls, "kind", "sequence", "bytes", "module", "phase", "by")
    columns |= {"group": list(map(attrgetter("group.label"), met))} | attribute_columns(met, "ranks")
    columns |= {"groups": list(map(attrgetter("times"), met)), "differs": list(map(difference_words, met))}
    return columns | attribute_columns(calls, "site")


def _of_each_rank(cluster: Cluster) -> Columns:
    place_of = lay_out_columns(cluster).place_ranks()
    reports, coordinates, places, ages = [], [], [], []
    for rank in cluster.ranks:
        reports.append(rank.said)
        coordinates.append(cluster.find_coordinates(rank))
        places.append(place_of.get(rank.number, NOWHERE))
        ages.append(find_age(cluster, rank))
    columns = attribute_columns(cluster.ranks, "number", "state") | attribute_columns(reports, "host", "pid")
    columns |= {"coordinates": coordinates, "placement": places, **attribute_columns(reports, "device", "step"), "age": ages}
    return columns | attribute_columns(cluster.ranks, "note")


frame(Cluster, {"ranks": _of_each_rank, "collectives": _of_all_ranks})


MOST_LINES = 10
_WIDE = 160


def is_well(cluster: Cluster) -> bool:
    """Return whether every rank answered or ended normally, without findings above a hint."""
    severities = map(attrgetter("severity"), cluster.findings)
    return ranks_by_state(cluster).keys() <= ORDERLY and set(severities) <= {"info"}


def diagnosis_text(cluster: Cluster) -> str:
    """Return the diagnosis; lines beyond the tenth are counted."""
    lines = [cluster_headline(cluster, len(lay_out_columns(cluster).each)), *_finding_lines(cluster), *_state_lines(cluster)]
    if is_well(cluster):
        lines.append(f"no problems found; checked: {', '.join(cluster.checked)}")
    if len(lines) > MOST_LINES:
        more = len(lines) - MOST_LINES + 1
        lines[MOST_LINES - 1 :] = [f"and {more} more lines: print(devwidget.ranks(...))"]
    return text_of(cut_line(line, _WIDE) for line in lines)


def _finding_lines(cluster: Cluster) -> Iterator[str]:
    for at, finding in enumerate(map(translate_finding, cluster.findings)):
        yield f"{code_word(finding.severity)}[{finding.kind}] {finding.headline}"
        if finding.fault is not None:
            yield label_line(say("where"), row_words((site_words(finding.fault), first_line(finding.fault)), "  "))
        if not at:
            yield from (label_line(say("note"), note) for note in finding.notes[:2])
        yield from (label_line(say("help"), fix.summary) for fix in finding.fixes[:1])


def _state_lines(cluster: Cluster) -> Iterator[str]:
    for state, ranks in ranks_by_state(cluster).items():
        if state not in ORDERLY:
            words = [f"{code_word(state)}: {ranks_words(runs_of(numbers_of(ranks)))}", said(ranks[0].note)]
            words += map(site_words, ranks[0].said.stack[-1:])
            yield row_words(words, "; ")
