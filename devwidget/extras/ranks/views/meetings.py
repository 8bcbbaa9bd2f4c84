"""The collectives of a traced job: the n-th that each rank of a group begins is one, also where they disagree; as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from devwidget.extras.ranks.records.traced_steps import TracedJob, TracedRank, ring_distance
from devwidget.records.parallel import POINT_TO_POINT, UNKNOWN, CollectiveCall, ProcessGroup
from devwidget.records.site import Phase, Site

SAME_BYTES = frozenset({"all_reduce", "broadcast", "reduce", "reduce_scatter"})
"""Kinds for which every rank must give as much as the others."""
Difference = Literal["", "missing", "kind", "size"]


class Part(NamedTuple):
    """One rank's part: its number, and the place of the call among those of its step."""

    rank: int
    place: int


@dataclass(frozen=True, slots=True)
class Meeting:
    """One collective of one group, or one message.

    Attributes:
        call: as the lowest of its ranks began it.
        group: whose it is; of several groups whose ranks did the same, the first.
        parts: of the ranks of the group that began it, in the order of the group; of a message who sends it first.
        missing: ranks of the group that were recorded and did not begin it.
        kinds: different kinds, and of one kind that takes equal sizes the different sizes, each with its ranks.
        times: how many groups did this, each with ranks of its own.
    """

    call: CollectiveCall
    group: ProcessGroup
    parts: tuple[Part, ...]
    missing: tuple[int, ...] = ()
    kinds: tuple[tuple[str, int, tuple[int, ...]], ...] = ()
    times: int = 1

    @property
    def difference(self) -> Difference:
        """In what its ranks do not agree, "" if in nothing."""
        if len({kind for kind, _, _ in self.kinds} - POINT_TO_POINT) > 1:
            return "kind"
        return "missing" if self.missing else "size" if self.kinds else ""


def find_meetings(job: TracedJob, *, every_group: bool = False) -> tuple[Meeting, ...]:
    """All, group by group, each in its order; groups whose ranks did the same are told once, unless every one is asked for."""
    ranks = {rank.number: rank for rank in job.ranks}
    alike: dict[tuple[object, ...], list[int]] = {}
    for place, group in enumerate(job.groups):
        alike.setdefault((place,) if every_group else _rank_signature(job, ranks, place, group), []).append(place)
    return tuple(meeting for same in alike.values() for meeting in _of_group(job, ranks, same[0], len(same)))


def call_of(job: TracedJob, rank: TracedRank, place: int) -> CollectiveCall:
    """What a rank has begun; lines and bytes are those of its kind."""
    return job.kinds[rank.kind].step.collectives[place]


def _rank_signature(job: TracedJob, ranks: Mapping[int, TracedRank], place: int, group: ProcessGroup) -> tuple[object, ...]:
    """What each of its ranks did, and by which of its own groups; None for one that was not recorded."""
    found = (ranks.get(number) for number in group.ranks)
    return group.label, *(rank and (rank.kind, rank.groups.index(place) if place in rank.groups else UNKNOWN) for rank in found)


def _of_group(job: TracedJob, ranks: Mapping[int, TracedRank], place: int, times: int) -> Iterator[Meeting]:
    group = job.groups[place]
    members = [ranks[number] for number in group.ranks if number in ranks]
    met: dict[object, list[Part]] = {}
    for rank in members:
        for at, call in _calls_in_group(job, rank, place):
            met.setdefault(_meeting_key(job, rank, call, group), []).append(Part(rank.number, at))
    for key, parts in met.items():
        calls = {part: call_of(job, ranks[part.rank], part.place) for part in parts}
        message = isinstance(key, tuple)
        yield Meeting(
            calls[parts[0]], group, tuple(sorted(parts, key=lambda part: calls[part].kind != "send") if message else parts),
            _missing_ranks(key, members, parts), _differing_kinds(calls, message), times,
        )  # fmt: skip


def _calls_in_group(job: TracedJob, rank: TracedRank, place: int) -> Iterator[tuple[int, CollectiveCall]]:
    for at, call in enumerate(job.kinds[rank.kind].step.collectives):
        if rank.groups[call.group] == place:
            yield at, call


def _meeting_key(job: TracedJob, rank: TracedRank, call: CollectiveCall, group: ProcessGroup) -> object:
    """Of a collective its number in the group; of a message its two ends and its number between them."""
    if call.kind not in POINT_TO_POINT:
        return call.sequence
    lowest = job.kinds[rank.kind].ranks[0][0]
    own = job.kinds[rank.kind].step.groups[call.group]
    far = ring_distance(own, lowest, call.peer)
    there = group.ranks[(group.ranks.index(rank.number) + far) % len(group.ranks)] if far != UNKNOWN else UNKNOWN
    ends = (rank.number, there) if call.kind == "send" else (there, rank.number)
    return (*ends, call.sequence)


def _missing_ranks(key: object, members: Iterable[TracedRank], parts: Iterable[Part]) -> tuple[int, ...]:
    began = {part.rank for part in parts}
    recorded = {rank.number for rank in members}
    wanted = recorded & set(key[:2]) if isinstance(key, tuple) else recorded
    return () if isinstance(key, tuple) and UNKNOWN in key else tuple(sorted(wanted - began))


def _differing_kinds(calls: Mapping[Part, CollectiveCall], message: bool) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
    found: dict[tuple[str, int], list[int]] = {}
    for part, call in calls.items():
        size = call.bytes if message or call.kind in SAME_BYTES else UNKNOWN
        found.setdefault((call.kind, size), []).append(part.rank)
    fits = message and len({size for _, size in found}) == 1
    return () if fits or len(found) == 1 else tuple((*what, tuple(numbers)) for what, numbers in found.items())


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


def row_kind(meeting: Meeting) -> str:
    """What a row calls it."""
    return "message" if meeting.call.kind in POINT_TO_POINT else meeting.call.kind


def collective_rows(met: Iterable[Meeting]) -> tuple[list[CollectiveRow], list[int]]:
    """The rows, and for each collective the place of its row."""
    places: dict[object, int] = {}
    rows: list[CollectiveRow] = []
    found: list[int] = []
    for meeting in met:
        fresh = _make_row(meeting)
        odd = len(found) if meeting.difference else None
        key = fresh.kind, meeting.group.label, len(meeting.group.ranks), fresh.by, fresh.phase, fresh.site, odd
        place = places.setdefault(key, len(rows))
        if place == len(rows):
            rows.append(fresh)
        else:
            rows[place] = _join_rows(rows[place], fresh)
        found.append(place)
    return rows, found


def _make_row(meeting: Meeting) -> CollectiveRow:
    call, groups = meeting.call, ((meeting.group, meeting.times),)
    return CollectiveRow(
        row_kind(meeting),
        groups,
        call.by,
        call.phase,
        call.site,
        (call.module,),
        call.bytes,
        call.bytes,
        meeting.times,
        meeting,
    )


def _join_rows(row: CollectiveRow, more: CollectiveRow) -> CollectiveRow:
    return replace(
        row,
        groups=tuple(dict.fromkeys(row.groups + more.groups)),
        modules=tuple(dict.fromkeys(row.modules + more.modules)),
        least=min(row.least, more.least),
        most=max(row.most, more.most),
        count=row.count + more.count,
    )


def given_bytes(job: TracedJob) -> tuple[int, int]:
    """The least and the most bytes that a rank gives in the whole step."""
    sums = [sum(call.bytes for call in kind.step.collectives if call.kind != "recv") for kind in job.kinds]
    return min(sums, default=0), max(sums, default=0)
