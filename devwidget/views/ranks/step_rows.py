"""The collectives of a step as rows: those of one kind, cause and line together, with what each rank gives in all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from devwidget.records.parallel import POINT_TO_POINT, ProcessGroup
from devwidget.records.phase import Phase
from devwidget.records.ranks.traced import TracedJob
from devwidget.records.site import Site
from devwidget.views.ranks.meetings import Meeting


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """Collectives of one kind that one line asked for.

    Attributes:
        kind: `all_gather`, ...; `message` for what one rank sends to another.
        groups: process groups, each with how many others did the same.
        by: the part of torch that asked, "" for the user's own call.
        phase: part of the step.
        site: the user's line.
        modules: paths, each once, in order; None for outside the model.
        least, most: bytes that one rank gives to one of them.
        count: how many there are, in all groups.
        meeting: the first; where its ranks do not agree, the only one.
    """

    kind: str
    groups: tuple[tuple[ProcessGroup, int], ...]
    by: str
    phase: Phase
    site: Site | None
    modules: tuple[str | None, ...]
    least: int
    most: int
    count: int
    meeting: Meeting


def kind_of(meeting: Meeting) -> str:
    """What a row calls it."""
    return "message" if meeting.call.kind in POINT_TO_POINT else meeting.call.kind


def collective_rows(met: Iterable[Meeting]) -> tuple[list[CollectiveRow], list[int]]:
    """The rows, and for each collective the place of its row."""
    places: dict[object, int] = {}
    rows: list[CollectiveRow] = []
    found: list[int] = []
    for meeting in met:
        fresh = _row(meeting)
        odd = len(found) if meeting.difference else None
        key = fresh.kind, meeting.group.label, len(meeting.group.ranks), fresh.by, fresh.phase, fresh.site, odd
        place = places.setdefault(key, len(rows))
        if place == len(rows):
            rows.append(fresh)
        else:
            rows[place] = _joined(rows[place], fresh)
        found.append(place)
    return rows, found


def _row(meeting: Meeting) -> CollectiveRow:
    call, groups = meeting.call, ((meeting.group, meeting.times),)
    return CollectiveRow(
        kind_of(meeting), groups, call.by, call.phase, call.site, (call.module,), call.bytes, call.bytes, meeting.times, meeting
    )


def _joined(row: CollectiveRow, more: CollectiveRow) -> CollectiveRow:
    return replace(
        row,
        groups=tuple(dict.fromkeys(row.groups + more.groups)),
        modules=tuple(dict.fromkeys(row.modules + more.modules)),
        least=min(row.least, more.least),
        most=max(row.most, more.most),
        count=row.count + more.count,
    )


def given(job: TracedJob) -> tuple[int, int]:
    """The least and the most bytes that a rank gives in the whole step."""
    sums = [sum(call.bytes for call in kind.step.collectives if call.kind != "recv") for kind in job.kinds]
    return min(sums, default=0), max(sums, default=0)
