"""The collectives of a traced job: the n-th that each rank of a group begins is one, also where they disagree; as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from devwidget.extras.ranks.records.traced_steps import TracedJob, TracedRank, find_peer
from devwidget.records.parallel import POINT_TO_POINT, UNKNOWN, CollectiveCall, ProcessGroup
from devwidget.records.site import Phase, Site

SAME_BYTES = frozenset({"all_reduce", "broadcast", "reduce", "reduce_scatter"})
"""Kinds for which every rank must give as much as the others."""
Difference = Literal["", "missing", "kind", "size"]


@dataclass(frozen=True, slots=True)
class Meeting:
    """One collective of one group, or one message.

    Attributes:
        call: as the lowest of its ranks began it.
        group: whose it is; of several groups whose ranks did the same, the first.
        ranks: of the group that began it, in the order of the group; of a message who sends it first.
        missing: ranks of the group that were recorded and did not begin it.
        kinds: different kinds, and of one kind that takes equal sizes the different sizes, each with its ranks.
        times: how many groups did this, each with ranks of its own.
    """

    call: CollectiveCall
    group: ProcessGroup
    ranks: tuple[int, ...]
    missing: tuple[int, ...] = ()
    kinds: tuple[tuple[str, int, tuple[int, ...]], ...] = ()
    times: int = 1

    @property
    def difference(self) -> Difference:
        """In what its ranks do not agree, "" if in nothing."""
        if len({kind for kind, _, _ in self.kinds} - POINT_TO_POINT) > 1:
            return "kind"
        if self.missing:
            return "missing"
        if self.kinds:
            return "size"
        return ""


def find_meetings(job: TracedJob) -> tuple[Meeting, ...]:
    """All, group by group, each in its order; groups whose ranks did the same are told once."""
    ranks = {rank.number: rank for rank in job.ranks}
    alike: dict[tuple[object, ...], list[int]] = {}
    for place, group in enumerate(job.groups):
        alike.setdefault(_rank_signature(job, ranks, place, group), []).append(place)
    return tuple(meeting for same in alike.values() for meeting in _of_group(job, ranks, same[0], len(same)))


def _rank_signature(job: TracedJob, ranks: Mapping[int, TracedRank], place: int, group: ProcessGroup) -> tuple[object, ...]:
    """What each of its ranks did, and by which of its own groups; None for one that was not recorded."""
    signature: list[object] = [group.label]
    for number in group.ranks:
        rank = ranks.get(number)
        if rank is None:
            signature.append(None)
        elif place in rank.groups:
            signature.append((rank.kind, rank.groups.index(place)))
        else:
            signature.append((rank.kind, UNKNOWN))
    return tuple(signature)


def _of_group(job: TracedJob, ranks: Mapping[int, TracedRank], place: int, times: int) -> Iterator[Meeting]:
    group = job.groups[place]
    members = [ranks[number] for number in group.ranks if number in ranks]
    met: dict[_Key, dict[int, CollectiveCall]] = {}
    for rank in members:
        for call in job.kinds[rank.kind].step.collectives:
            if rank.groups[call.group] == place:
                met.setdefault(_meeting_key(job, rank, call), {})[rank.number] = call
    for key, calls in met.items():
        first = next(iter(calls.values()))
        # Of a message who sends it first.
        in_order = sorted(calls, key=lambda number: calls[number].kind == "recv")
        yield Meeting(first, group, tuple(in_order), _missing_ranks(key, members, calls), _differing_kinds(calls), times)


class _Key(NamedTuple):
    """What tells a collective of a group: its number; a message by its two ends too, who sends it first."""

    sequence: int
    ends: tuple[int, ...] = ()


def _meeting_key(job: TracedJob, rank: TracedRank, call: CollectiveCall) -> _Key:
    if call.kind not in POINT_TO_POINT:
        return _Key(call.sequence)
    peer = find_peer(job, rank, call)
    if call.kind == "send":
        return _Key(call.sequence, (rank.number, peer))
    return _Key(call.sequence, (peer, rank.number))


def _missing_ranks(key: _Key, members: Iterable[TracedRank], began: Iterable[int]) -> tuple[int, ...]:
    if UNKNOWN in key.ends:
        return ()
    wanted = {rank.number for rank in members}
    if key.ends:
        wanted &= set(key.ends)
    return tuple(sorted(wanted.difference(began)))


def _differing_kinds(calls: Mapping[int, CollectiveCall]) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
    found: dict[tuple[str, int], list[int]] = {}
    for number, call in calls.items():
        size = UNKNOWN
        if call.kind in SAME_BYTES | POINT_TO_POINT:
            size = call.bytes
        found.setdefault((call.kind, size), []).append(number)
    kinds, sizes = map(set, zip(*found, strict=True))
    if len(found) == 1 or (kinds <= POINT_TO_POINT and len(sizes) == 1):
        return ()
    return tuple((kind, size, tuple(numbers)) for (kind, size), numbers in found.items())


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


def collective_rows(met: Iterable[Meeting]) -> list[CollectiveRow]:
    """The rows; one on which ranks do not agree has its own."""
    rows: dict[object, CollectiveRow] = {}
    for at, meeting in enumerate(met):
        fresh = _make_row(meeting)
        key: tuple[object, ...] = fresh.kind, meeting.group.label, len(meeting.group.ranks), fresh.by, fresh.phase, fresh.site
        if meeting.difference:
            key = (*key, at)
        if key in rows:
            fresh = _join_rows(rows[key], fresh)
        rows[key] = fresh
    return list(rows.values())


def _make_row(meeting: Meeting) -> CollectiveRow:
    call, groups = meeting.call, ((meeting.group, meeting.times),)
    kind = call.kind
    if kind in POINT_TO_POINT:
        kind = "message"
    return CollectiveRow(
        kind, groups, call.by, call.phase, call.site, (call.module,), call.bytes, call.bytes, meeting.times, meeting
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
