"""absent-from-collective: some ranks wait in a collective that other ranks of its group have not called.

Why: a collective completes once every rank of its group has called it.
Bad: `if rank == 0: dist.barrier()`; a rank that exited, raised, or is still loading data.
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
from devwidget.extras.ranks.rules.waiting.rank_raised import raised_itself
from devwidget.records.finding import Finding, Fix, RankRole, Severity
from devwidget.records.runs import format_runs, runs_of
from devwidget.records.schema.message import Message, in_row

Why = Literal["dead", "stopped", "raised", "ended", "terminated", "not begun", "unknown", ""]
"""Why others wait for a rank; "" if they do not."""
_PLAINEST_FIRST: tuple[Why, ...] = "dead", "stopped", "not begun", "terminated", "ended"


@dataclass(frozen=True, slots=True)
class _Wait:
    """Ranks that have waited in one collective for too long.

    Attributes:
        ranks: Waiting ranks.
        absent: Ranks that block it, by reason.
        unknown: Ranks that may block it.
        told: Whether another kind of finding reports the cause.
    """

    ranks: list[Rank]
    absent: dict[Why, list[Rank]]
    unknown: list[Rank]
    told: bool

    @property
    def seconds(self) -> float:
        """Longest wait of its ranks."""
        return max(map(_waited_seconds, self.ranks))

    @property
    def has_only_begun(self) -> bool:
        """Whether live ranks have waited only briefly: an earlier report is out of date, and the next query decides."""
        hung = [_waited_seconds(rank) for rank in self.ranks if rank.state == "hung"]
        return 0 < max(hung, default=0) < _MOMENT


def _waited_seconds(rank: Rank) -> float:
    if rank.said.waits is None:
        return 0.0
    return rank.said.waits.seconds


_MOMENT = 1.0
"""Seconds within which the ranks of a job are queried, one after the other."""
_Holders = tuple[tuple[Why, tuple[int, ...]], ...]
"""Ranks that block a collective, by reason, clearest reason first."""
_PlaceOf = Mapping[int, CollectivePlace]
"""Place of each waiting rank."""


@cluster_rule("absent-from-collective")
def check(cluster: Cluster) -> Iterator[Finding]:
    """Yield one finding for each cause: for all collectives that the same ranks block, and those that these block in turn."""
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
        if not causes[place] and not wait.told and (wait.absent or wait.unknown):
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
    """Group ranks by the place where they wait, or waited when a signal ended them."""
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


def _name_holders(wait: _Wait, place_of: _PlaceOf) -> _Holders:
    """Return the ranks that block a collective: those that do not wait themselves, if there are any.

    Without such ranks, return those whose state is unknown.
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
    """Return where the absent ranks of a collective wait; nowhere if one of them does not wait and so blocks all."""
    ahead: set[CollectivePlace] = set()
    if wait.told:
        return ahead
    for rank in itertools.chain(*wait.absent.values()):
        if rank.number not in place_of:
            return set()
        ahead.add(place_of[rank.number])
    return ahead


def _find_causes(place: CollectivePlace, ahead: Mapping[CollectivePlace, set[CollectivePlace]]) -> set[CollectivePlace]:
    """Find the waits that cause this one: on a mesh, a rank missing in one group may wait in another.

    There is none if this wait is the first, or if ranks wait for each other in a cycle.
    """
    seen, left = {place}, [place]
    while left:
        further = ahead[left.pop()] - seen
        seen |= further
        left += further
    return {each for each in seen - {place} if not ahead[each]}


_SAME_BYTES = frozenset({"all_reduce", "reduce", "broadcast"})
"""Kinds that require equal sizes on every rank."""


def collective_kind(rank: Rank) -> str:
    """Return the kind of the collective of a rank, with its size if that is equal on every rank."""
    found = rank.said.collective
    if found is None:
        return ""
    return word_kind(found.kind, found.bytes)


def word_kind(kind: str, size: int) -> str:
    """Return `` `all_reduce` of 64 bytes`` or `` `all_gather` ``."""
    word = f"`{kind}`"
    if kind in _SAME_BYTES:
        return Message("{kind} of {size} bytes", kind=word, size=f"{size:,}")
    return word


def _find_why(place: CollectivePlace, first: Rank, rank: Rank) -> Why:
    """Return why this rank blocks a collective in which another waits; "" if it has called it."""
    if rank.state == "dead" or rank.state == "stopped":
        return rank.state
    begun = _has_begun(rank, place)
    if begun:
        return ""
    if rank.state == "raised":
        return "raised" if raised_itself(rank) else "unknown"
    if begun is None or not _spoke_late_enough(rank, first):
        return "ended" if rank.state == "ended" else "unknown"
    if rank.state in ("ended", "terminated"):
        return rank.state
    return "not begun"


def _spoke_late_enough(rank: Rank, first: Rank) -> bool:
    """Return whether a rank reported after the other had waited for a while; before, it may not have arrived yet.

    A report may be older than the wait, and so may one of two jobs that were saved separately.
    """
    if rank.state == "stale" or first.said.waits is None:
        return False
    if not rank.said.taken or not first.said.taken:
        return True
    return rank.said.taken >= first.said.taken - first.said.waits.seconds / 2


def _has_begun(rank: Rank, place: CollectivePlace) -> bool | None:
    """Return whether a rank has called a collective; None if its report does not say."""
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


_HEADLINES = {
    "dead": ("{wait}, but the process of {others} has ended", "{wait}, but the processes of {others} have ended"),
    "stopped": ("{wait}, but {others} is stopped by a signal", "{wait}, but {others} are stopped by a signal"),
    "ended": ("{wait}, but {others} has finished", "{wait}, but {others} have finished"),
    "not begun": ("{wait}, which {others} has not reached", "{wait}, which {others} have not reached"),
    "unknown": ("{wait}; it is unknown whether {others} reached it",) * 2,
}
"""Headlines for one absent rank, and for several."""
_FIXES = {
    "dead": Message("look in the output of that process for the reason"),
    "stopped": Message("resume it: kill -CONT, or fg in its terminal"),
    "ended": Message("give every rank the same number of steps; its batches may be unevenly split"),
    "not begun": Message("make every rank reach this line equally often"),
    "unknown": Message(
        "query those ranks on their machines, or collect their files: devwidget.ranks(folder) on each machine of the job"
    ),
}


def _make_finding(cluster: Cluster, wait: _Wait, holders: _Holders, behind: tuple[int, ...]) -> Finding:
    """Return the finding for one collective: who waits, who blocks it, who is unknown, and who waits for these."""
    why, named = holders[0]
    severity: Severity = "warning"
    absent = []
    if why != "unknown":
        severity = "error"
        absent = cluster.select(itertools.chain(*(numbers for _, numbers in holders)))
    if why == "terminated":
        why = "not begun"
    roles = _make_roles(wait, why, named, behind)
    headline = Message.of(len(named), *_HEADLINES[why], wait=_word_wait(roles[0]), others=format_rank_ranges(named))
    fixes = [Fix(_FIXES[why], "", "choice")]
    notes = [*_note_waits(wait, roles), *_whereabouts(absent)]
    if absent and wait.unknown:
        fixes.append(Fix(_FIXES["unknown"], "", "choice"))
        notes.append(Message("it is unknown whether {others} began it", others=name_ranks(wait.unknown)))
    return Finding(
        "absent-from-collective", severity, None, headline,
        Message("a collective completes once every rank of its group has called it"),
        fault=wait.ranks[0].line,
        birth=next(filter(None, (rank.line for rank in absent)), None),
        fixes=tuple(fixes),
        notes=(*notes, *_whereabouts(wait.unknown)),
        roles=roles,
    )  # fmt: skip


def _make_roles(wait: _Wait, why: Why, named: tuple[int, ...], behind: tuple[int, ...]) -> tuple[RankRole, ...]:
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


def _note_waits(wait: _Wait, roles: tuple[RankRole, ...]) -> Iterator[str]:
    have = "had" if roles[0].how == "before" else "have"
    yield Message("they {have} waited for {seconds} s", have=have, seconds=round(wait.seconds))
    for behind in roles[2:]:
        yield Message.of(
            len(behind.ranks), "{ranks} also waits, in another collective", "{ranks} also wait, in other collectives",
            ranks=format_runs(runs_of(behind.ranks)),
        )  # fmt: skip


def _whereabouts(ranks: list[Rank]) -> Iterator[str]:
    for (state, note, line), same in group_by(ranks, lambda rank: (rank.state, rank.note, rank.line)).items():
        where: list[str] = [Message(state), note]
        if line is not None:
            where.append(Message("at {place}: {source}", place=str(line), source=line.text))
        yield Message("{what}: {place}", what=name_ranks(same), place=in_row(where))
