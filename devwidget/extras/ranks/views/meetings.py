"""Collectives of a traced job as rows: the n-th call of each rank of a group is one collective, even if the calls differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from devwidget.extras.ranks.records.traced_steps import TracedJob, TracedRank, find_peer
from devwidget.records.parallel import POINT_TO_POINT, UNKNOWN, CollectiveCall, ProcessGroup

SAME_BYTES = frozenset({"all_reduce", "broadcast", "reduce", "reduce_scatter"})
"""Kinds that require equal sizes on every rank."""
Difference = Literal["", "missing", "kind", "size"]


@dataclass(frozen=True, slots=True)
class Meeting:
    """One collective of one group, or one message.

    Attributes:
        call: The call of the lowest of its ranks.
        group: Its group; the first of several groups whose ranks did the same.
        ranks: Ranks that called it, in the order of the group; the sender of a message first.
        missing: Recorded ranks of the group that did not call it.
        kinds: Different kinds, or different sizes of one kind that requires equal sizes, each with its ranks.
        times: Number of groups that did this, each with other ranks.
    """

    call: CollectiveCall
    group: ProcessGroup
    ranks: tuple[int, ...]
    missing: tuple[int, ...] = ()
    kinds: tuple[tuple[str, int, tuple[int, ...]], ...] = ()
    times: int = 1

    @property
    def difference(self) -> Difference:
        """What its ranks disagree on, "" if nothing."""
        if len({kind for kind, _, _ in self.kinds} - POINT_TO_POINT) > 1:
            return "kind"
        if self.missing:
            return "missing"
        if self.kinds:
            return "size"
        return ""


def find_meetings(job: TracedJob | None) -> tuple[Meeting, ...]:
    """Return all meetings by group and order; groups whose ranks did the same appear once."""
    if job is None:
        return ()
    ranks = {rank.number: rank for rank in job.ranks}
    alike: dict[tuple[object, ...], list[int]] = {}
    for place, group in enumerate(job.groups):
        alike.setdefault(_rank_signature(job, ranks, place, group), []).append(place)
    return tuple(meeting for same in alike.values() for meeting in _of_group(job, ranks, same[0], len(same)))


def _rank_signature(job: TracedJob, ranks: Mapping[int, TracedRank], place: int, group: ProcessGroup) -> tuple[object, ...]:
    """Return what each of its ranks did, with its own groups; None for a rank that was not recorded."""
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
    for (_, ends), calls in met.items():
        first = next(iter(calls.values()))
        # Of a message who sends it first.
        in_order = sorted(calls, key=lambda number: calls[number].kind == "recv")
        yield Meeting(first, group, tuple(in_order), _missing_ranks(ends, members, calls), _differing_kinds(calls), times)


_Key = tuple[int, tuple[int, ...]]
"""What identifies a collective of a group: its number; for a message also its sender and receiver."""


def _meeting_key(job: TracedJob, rank: TracedRank, call: CollectiveCall) -> _Key:
    if call.kind not in POINT_TO_POINT:
        return call.sequence, ()
    peer = find_peer(job, rank, call)
    if call.kind == "send":
        return call.sequence, (rank.number, peer)
    return call.sequence, (peer, rank.number)


def _missing_ranks(ends: tuple[int, ...], members: Iterable[TracedRank], began: Iterable[int]) -> tuple[int, ...]:
    if UNKNOWN in ends:
        return ()
    wanted = {rank.number for rank in members}
    if ends:
        wanted &= set(ends)
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


def row_kind(call: CollectiveCall) -> str:
    """Return its kind; `message` for a send from one rank to another."""
    if call.kind in POINT_TO_POINT:
        return "message"
    return call.kind


def collective_rows(met: Iterable[Meeting]) -> list[list[Meeting]]:
    """Group meetings of one kind that one line called; one on which ranks disagree has a group of its own."""
    rows: dict[object, list[Meeting]] = {}
    for at, meeting in enumerate(met):
        call, group = meeting.call, meeting.group
        key: tuple[object, ...] = row_kind(call), group.label, len(group.ranks), call.by, call.phase, call.site
        if meeting.difference:
            key = (*key, at)
        rows.setdefault(key, []).append(meeting)
    return list(rows.values())


def given_bytes(job: TracedJob) -> tuple[int, int]:
    """Return the least and the most bytes that a rank passes in the whole step."""
    sums = [sum(call.bytes for call in kind.step.collectives if call.kind != "recv") for kind in job.kinds]
    return min(sums, default=0), max(sums, default=0)
