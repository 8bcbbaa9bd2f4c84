"""absent-from-collective: some ranks wait in a collective that other ranks of its group have not called.

Why: a collective completes once every rank of its group has called it.
Bad: `if rank == 0: dist.barrier()`; a rank that exited, raised, or still loads data.
Good: the same collectives in the same order on every rank.
Source: https://docs.pytorch.org/docs/stable/distributed.html
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from devwidget.extras.ranks.records.cluster import NOWHERE, Cluster, Rank, group_by, numbers_of
from devwidget.extras.ranks.records.rank import CollectivePlace
from devwidget.extras.ranks.rules.over_ranks import cluster_rule, format_rank_ranges, name_ranks
from devwidget.extras.ranks.rules.waiting.endings import raised_itself
from devwidget.records.finding import Finding, Fix, RankRole, Severity
from devwidget.records.runs import format_runs, runs_of
from devwidget.records.schema.message import Message, in_row

Why = Literal["dead", "stopped", "raised", "ended", "terminated", "not begun", "unknown", ""]
"""Of a rank for which others wait; "" for one that does its part."""
_PLAINEST_FIRST: tuple[Why, ...] = "dead", "stopped", "not begun", "terminated", "ended"


@dataclass(frozen=True, slots=True)
class _Wait:
    """Ranks that wait in one collective longer than is usual.

    Attributes:
        ranks: that wait.
        absent: those that hold it up, by why.
        unknown: those of which that is not known.
        told: what holds it up is a finding of another kind.
    """

    ranks: list[Rank]
    absent: dict[Why, list[Rank]]
    unknown: list[Rank]
    told: bool

    @property
    def seconds(self) -> float:
        """For how long the first of its ranks has waited."""
        return max(map(_waited_seconds, self.ranks))

    @property
    def has_only_begun(self) -> bool:
        """Whether ranks that live wait for a moment only: who was heard before is early; the next question tells."""
        hung = [_waited_seconds(rank) for rank in self.ranks if rank.state == "hung"]
        return 0 < max(hung, default=0) < _MOMENT


def _waited_seconds(rank: Rank) -> float:
    if rank.said.waits is None:
        return 0.0
    return rank.said.waits.seconds


_MOMENT = 1.0
"""Seconds within which the ranks of a job are heard, one after the other."""
_Holders = tuple[tuple[Why, tuple[int, ...]], ...]
"""Who holds a collective up, by why, the plainest reason first."""
_PlaceOf = Mapping[int, CollectivePlace]
"""Where each rank waits that does."""


@cluster_rule("absent-from-collective")
def check(cluster: Cluster) -> Iterator[Finding]:
    """One finding for each cause: for all collectives that the same ranks hold up, and those that these hold up in turn."""
    places = waiting(cluster)
    place_of: dict[int, CollectivePlace] = {}
    for place, ranks in places.items():
        place_of |= dict.fromkeys(numbers_of(ranks), place)
    waits = dict(_find_waits(cluster, places))
    ahead = {place: _find_ahead(wait, place_of) & waits.keys() for place, wait in waits.items()}
    causes: dict[CollectivePlace, set[CollectivePlace]] = {}
    firsts = []
    for place, wait in waits.items():
        causes[place] = _find_causes(place, ahead)
        if not causes[place] and _is_held_up(wait):
            firsts.append(place)
    for holders, same in group_by(firsts, lambda place: _name_holders(waits[place], place_of)).items():
        first = max(same, key=lambda place: waits[place].seconds)
        behind: list[int] = []
        for place, found in causes.items():
            if place != first and (place in same or not found.isdisjoint(same)):
                behind += numbers_of(waits[place].ranks)
        if holders[0][0] != "unknown" or not waits[first].has_only_begun:
            yield _make_finding(cluster, waits[first], holders, tuple(sorted(behind)))


def waiting(cluster: Cluster) -> dict[CollectivePlace, list[Rank]]:
    """Ranks by the place where they wait, or waited when a signal ended them."""
    found: dict[CollectivePlace, list[Rank]] = {}
    for rank in cluster.ranks:
        if rank.said.waits is not None and rank.state not in _WAIT_NO_MORE:
            found.setdefault(rank.said.waits.place, []).append(rank)
    return found


_WAIT_NO_MORE = frozenset({"dead", "raised", "ended", "stale"})


def _find_waits(cluster: Cluster, places: dict[CollectivePlace, list[Rank]]) -> Iterator[tuple[CollectivePlace, _Wait]]:
    apart = {place[:2] for place, ranks in places.items() if len(set(map(collective_kind, ranks))) > 1}
    for place, ranks in places.items():
        if not place.ranks or not any(rank.hangs or rank.state == "hung" for rank in ranks):
            continue
        members = [cluster.ranks[number] for number in sorted(place.ranks) if number < len(cluster.ranks)]
        others = group_by(members, functools.partial(_find_why, place, ranks[0]))
        unknown = others.pop("unknown", [])
        others.pop("", None)
        # Where those that are there do not do the same, who else is missing, or was heard before the others came so far, is a
        # consequence; and an exception is a cause, and a finding of its own, which names who waits.
        yield place, _Wait(ranks, others, unknown, told=place[:2] in apart or "raised" in others)


def _is_held_up(wait: _Wait) -> bool:
    return not wait.told and bool(wait.absent or wait.unknown)


def _name_holders(wait: _Wait, place_of: _PlaceOf) -> _Holders:
    """The ranks that hold up a collective: of those only who waits nowhere, if there are any.

    Where there are none, those of which nothing is known.
    """
    waits_nowhere = any(rank.number not in place_of for ranks in wait.absent.values() for rank in ranks)
    named: list[tuple[Why, tuple[int, ...]]] = []
    for why in _PLAINEST_FIRST:
        numbers = numbers_of(wait.absent.get(why, ()))
        if waits_nowhere:
            numbers = [number for number in numbers if number not in place_of]
        if numbers:
            named.append((why, tuple(numbers)))
    if named:
        return tuple(named)
    return (("unknown", tuple(numbers_of(wait.unknown))),)


def _find_ahead(wait: _Wait, place_of: _PlaceOf) -> set[CollectivePlace]:
    """Where the ranks wait that are absent from a collective; nowhere if one of them does not wait: it is what holds all up."""
    ahead: set[CollectivePlace] = set()
    if wait.told:
        return ahead
    for rank in itertools.chain(*wait.absent.values()):
        if rank.number not in place_of:
            return set()
        ahead.add(place_of[rank.number])
    return ahead


def _find_causes(place: CollectivePlace, ahead: Mapping[CollectivePlace, set[CollectivePlace]]) -> set[CollectivePlace]:
    """Find at the end of which waits this one stands: on a mesh, who does not come in one group may wait in another.

    There is none where it is itself the first, and none where ranks wait for each other in a circle.
    """
    seen, left = {place}, [place]
    while left:
        further = ahead[left.pop()] - seen
        seen |= further
        left += further
    return {each for each in seen - {place} if not ahead[each]}


_SAME_BYTES = frozenset({"all_reduce", "reduce", "broadcast"})
"""Kinds in which every rank gives as much as the others."""


def collective_kind(rank: Rank) -> str:
    """The kind of the collective of a rank, with its size where that is the same on every rank."""
    found = rank.said.collective
    if found is None:
        return ""
    return word_kind(found.kind, found.bytes)


def word_kind(kind: str, size: int) -> str:
    """`` `all_reduce` of 64 bytes``, `` `all_gather` ``."""
    word = f"`{kind}`"
    if kind in _SAME_BYTES:
        return Message("{kind} of {size} bytes", kind=word, size=f"{size:,}")
    return word


def _find_why(place: CollectivePlace, first: Rank, rank: Rank) -> Why:
    """Why a collective in which another waits does not end, as far as this rank goes; "" if it does its part."""
    if rank.state == "dead" or rank.state == "stopped":
        return rank.state
    begun = _has_begun(rank, place)
    if begun:
        return ""
    if rank.state == "raised":
        if raised_itself(rank):
            return "raised"
        return "unknown"
    if begun is None or not _spoke_late_enough(rank, first):
        if rank.state == "ended":
            return "ended"
        return "unknown"
    if rank.state in ("ended", "terminated"):
        return rank.state
    return "not begun"


def _spoke_late_enough(rank: Rank, first: Rank) -> bool:
    """Whether a rank was heard when the other had waited for a while: what it had not begun before, it may have since.

    A file may be older than the wait, and so may one of two jobs that were saved apart.
    """
    if rank.state == "stale" or first.said.waits is None:
        return False
    if not rank.said.taken or not first.said.taken:
        return True
    return rank.said.taken >= first.said.taken - first.said.waits.seconds / 2


def _has_begun(rank: Rank, place: CollectivePlace) -> bool | None:
    """Whether a rank has begun a collective; None where nothing that was heard of it tells."""
    held = rank.said.collective
    if held is not None and (held.group, held.sequence) == (place.group, place.sequence) and held.ranks in (place.ranks, ()):
        return True
    if held is not None and held.finished and (held.group, held.ranks) == place[:2]:
        return held.sequence >= place.sequence  # the last that it has begun of all, as dumps tell
    groups = rank.said.groups
    begun = NOWHERE
    for each in groups:
        if each.name == place.group and each.first in (place.ranks[0], NOWHERE):
            begun = max(begun, each.begun)
    if begun != NOWHERE:
        return begun >= place.sequence
    # Torch itself names each group in which a busy rank has begun any.
    if rank.state == "busy" and groups and all(each.name for each in groups):
        return False
    return None


_FIXES = {
    "dead": Message("see why that process ended: its own output has the reason"),
    "stopped": Message("let it go on: kill -CONT, or fg in its terminal"),
    "ended": Message("see to it that every rank takes as many steps: batches may be uneven over the ranks"),
    "not begun": Message("see to it that every rank comes to this line as often as the others"),
    "unknown": Message("ask where those ranks run, or get their files: devwidget.ranks(folder) on each machine of the job"),
}


def _make_finding(cluster: Cluster, wait: _Wait, holders: _Holders, behind: tuple[int, ...]) -> Finding:
    """One collective: who waits, who holds it up, of whom nothing is known, and who waits for those that wait."""
    why, named = holders[0]
    severity: Severity = "warning"
    absent = []
    if why != "unknown":
        severity = "error"
        absent = cluster.select(itertools.chain(*(numbers for _, numbers in holders)))
    if why == "terminated":
        why = "not begun"
    roles = _make_roles(wait, why, named, behind)
    fixes = [Fix(_FIXES[roles[1].how], "", "choice")]
    notes = [*_note_waits(wait, roles), *_whereabouts(absent)]
    if absent and wait.unknown:
        fixes.append(Fix(_FIXES["unknown"], "", "choice"))
        notes.append(Message("whether {others} began it is not known here", others=name_ranks(wait.unknown)))
    return Finding(
        "absent-from-collective", severity, None,
        _word_headline(roles[1], _word_wait(roles[0])),
        Message("a collective ends when every rank of its group has begun it"),
        fault=wait.ranks[0].line,
        birth=next(filter(None, (rank.line for rank in absent)), None),
        fixes=tuple(fixes),
        notes=(*notes, *_whereabouts(wait.unknown)),
        roles=roles,
    )  # fmt: skip


def _make_roles(wait: _Wait, why: Why, named: tuple[int, ...], behind: tuple[int, ...]) -> tuple[RankRole, ...]:
    """Who waits, who is absent, and, if there are any, who is behind."""
    collective = wait.ranks[0].said.waits
    assert collective is not None
    is_over = all(rank.state == "terminated" for rank in wait.ranks)
    waits = RankRole(
        "waiting", name=collective.group, call=collective.kind, count=collective.sequence,
        ranks=tuple(numbers_of(wait.ranks)), how="before" if is_over else "",
    )  # fmt: skip
    absence = replace(waits, kind="absent", how=why, ranks=named)
    if behind:
        return (waits, absence, RankRole("behind", ranks=behind))
    return (waits, absence)


def _word_wait(waits: RankRole) -> str:
    facts = {"ranks": format_runs(runs_of(waits.ranks)), "kind": waits.call, "number": waits.count, "group": waits.name}
    if waits.how == "before":
        return Message("{ranks} waited in `{kind}` number {number} of `{group}`", **facts)
    return Message.of(
        len(waits.ranks), "{ranks} waits in `{kind}` number {number} of `{group}`",
        "{ranks} wait in `{kind}` number {number} of `{group}`", **facts,
    )  # fmt: skip


def _word_headline(absence: RankRole, wait: str) -> str:
    count, facts = len(absence.ranks), {"wait": wait, "others": format_rank_ranges(absence.ranks)}
    match absence.how:
        case "dead":
            return Message.of(
                count, "{wait}, and the process of {others} has ended",
                "{wait}, and the processes of {others} have ended", **facts,
            )  # fmt: skip
        case "stopped":
            return Message.of(
                count, "{wait}, and {others} is stopped by a signal", "{wait}, and {others} are stopped by a signal", **facts
            )
        case "not begun":
            return Message.of(count, "{wait}, which {others} has not begun", "{wait}, which {others} have not begun", **facts)
        case "ended":
            return Message.of(count, "{wait}, and {others} came to its end", "{wait}, and {others} came to their end", **facts)
        case _:
            return Message.of(
                count, "{wait}, and whether {others} has begun it is not known here",
                "{wait}, and whether {others} have begun it is not known here", **facts,
            )  # fmt: skip


def _note_waits(wait: _Wait, roles: tuple[RankRole, ...]) -> Iterator[str]:
    seconds = round(wait.seconds)
    if roles[0].how == "before":
        yield Message("they had waited for {seconds} s", seconds=seconds)
    else:
        yield Message("they have waited for {seconds} s", seconds=seconds)
    for behind in roles[2:]:
        yield Message.of(
            len(behind.ranks), "{ranks} waits too, in another collective", "{ranks} wait too, in other collectives",
            ranks=format_runs(runs_of(behind.ranks)),
        )  # fmt: skip


def _whereabouts(ranks: list[Rank]) -> Iterator[str]:
    for (state, note, line), same in group_by(ranks, lambda rank: (rank.state, rank.note, rank.line)).items():
        if line is None:
            at = ""
        else:
            at = Message("at {place}: {source}", place=str(line), source=line.text)
        how = in_row((Message(state), note, at))
        yield Message("{what}: {place}", what=name_ranks(same), place=how)
