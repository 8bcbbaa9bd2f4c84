"""absent-from-collective: some ranks wait in a collective that others of its group have not begun.

Why: a collective ends when all ranks of its group have begun it; who is elsewhere, or gone, keeps all others waiting.
Bad: `if rank == 0: dist.barrier()`, or a rank that ended, or raised, or still loads its data.
Good: the same collectives in the same order on every rank.
Source: https://docs.pytorch.org/docs/stable/distributed.html
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from devwidget.extras.ranks.records.cluster import NOWHERE, Cluster, Rank, line_of
from devwidget.extras.ranks.records.rank import Collective
from devwidget.extras.ranks.rules.over_ranks import cluster_rule, format_rank_ranges, group_by, group_ranks
from devwidget.extras.ranks.rules.rank_claims import words_of
from devwidget.extras.ranks.rules.waiting.endings import raised_itself
from devwidget.records.finding import Claim, Finding, Fix
from devwidget.records.schema.message import Message, in_row

Why = Literal["dead", "stopped", "raised", "ended", "terminated", "not begun", "unknown", ""]
"""Of a rank for which others wait; "" for one that does its part."""


Place = tuple[str, tuple[int, ...], int]
"""Where ranks wait: a group, its ranks, and the number of the collective."""


@dataclasses.dataclass(frozen=True, slots=True)
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
    told: bool = False


@cluster_rule("absent-from-collective")
def check(cluster: Cluster) -> Iterator[Finding]:
    """One finding for each cause: for all collectives that the same ranks hold up, and those that these hold up in turn."""
    places = waiting(cluster)
    place_of = {rank.number: place for place, ranks in places.items() for rank in ranks}
    waits = dict(_find_waits(cluster, places))
    ahead = {place: _find_ahead(wait, place_of) & waits.keys() for place, wait in waits.items()}
    causes = {place: _find_causes(place, ahead) for place in waits}
    firsts = [place for place, wait in waits.items() if not (wait.told or causes[place]) and (wait.absent or wait.unknown)]
    for same in group_by(firsts, lambda place: _name_holders(waits[place], place_of)).values():
        first = max(same, key=lambda place: _longest(waits[place].ranks))
        rest = {place for place, found in causes.items() if found & {*same}} | {*same} - {first}
        behind = sorted((rank for place in rest for rank in waits[place].ranks), key=lambda rank: rank.number)
        yield from _judge_wait(cluster, waits[first], dict(_name_holders(waits[first], place_of)), behind)


def _judge_wait(cluster: Cluster, wait: _Wait, named: Mapping[Why, tuple[int, ...]], behind: list[Rank]) -> Iterator[Finding]:
    if "unknown" not in named:
        absent = {why: [cluster.ranks[number] for number in numbers] for why, numbers in named.items()}
        everyone = [rank for ranks in absent.values() for rank in ranks]
        yield _make_finding(cluster, wait.ranks, *next(iter(absent.items())), everyone, wait.unknown, behind)
    elif not _has_only_begun(wait.ranks):
        yield _make_finding(cluster, wait.ranks, "unknown", wait.unknown, [], wait.unknown, behind)


def _name_holders(wait: _Wait, place_of: Mapping[int, Place]) -> tuple[tuple[Why, tuple[int, ...]], ...]:
    """The ranks that hold up a collective, the plainest reason first; of those only who waits nowhere, if there are any.

    Where there are none, those of which nothing is known.
    """
    elsewhere = {why: [rank for rank in ranks if rank.number not in place_of] for why, ranks in wait.absent.items()}
    absent = elsewhere if any(elsewhere.values()) else wait.absent
    named = tuple((why, _numbers(absent[why])) for why in _PLAINEST_FIRST if absent.get(why))
    return named or (("unknown", _numbers(wait.unknown)),)


def _longest(ranks: list[Rank]) -> float:
    """For how long the first of some ranks has waited."""
    return max(rank.collective.seconds for rank in ranks if rank.collective is not None)


def _find_ahead(wait: _Wait, place_of: Mapping[int, Place]) -> set[Place]:
    """Where the ranks wait that are absent from a collective; nowhere if one of them does not wait: it is what holds all up."""
    absent = [rank.number for ranks in wait.absent.values() for rank in ranks]
    if wait.told or any(number not in place_of for number in absent):
        return set()
    return {place_of[number] for number in absent}


def _find_causes(place: Place, ahead: Mapping[Place, set[Place]]) -> set[Place]:
    """Find at the end of which waits this one stands: on a mesh, who does not come in one group may wait in another.

    There is none where it is itself the first, and none where ranks wait for each other in a circle.
    """
    seen, left = {place}, [place]
    while left:
        further = ahead[left.pop()] - seen
        seen |= further
        left += further
    return {each for each in seen - {place} if not ahead[each]}


def _find_waits(cluster: Cluster, places: dict[Place, list[Rank]]) -> Iterator[tuple[Place, _Wait]]:
    apart = {place[:2] for place, ranks in places.items() if len({collective_kind(rank) for rank in ranks}) > 1}
    for place, ranks in places.items():
        group, members, _ = place
        if not members or not any(rank.hangs or rank.state == "hung" for rank in ranks):
            continue
        others = group_ranks((rank for rank in cluster.ranks if rank.number in members), functools.partial(_why, ranks[0]))
        unknown = others.pop("unknown", [])
        others.pop("", None)
        # Where those that are there do not do the same, who else is missing, or was heard before the others came so far, is a
        # consequence; and an exception is a cause, and a finding of its own, which names who waits.
        yield place, _Wait(ranks, others, unknown, told=(group, members) in apart or "raised" in others)


_MOMENT = 1.0
"""Seconds within which the ranks of a job are heard, one after the other."""


def _has_only_begun(ranks: list[Rank]) -> bool:
    """Whether ranks that live wait for a moment only: who was heard before is early, not unknown; the next question tells."""
    hung = [rank for rank in ranks if rank.state == "hung"]
    return bool(hung) and 0 < _longest(hung) < _MOMENT


def waiting(cluster: Cluster) -> dict[Place, list[Rank]]:
    """Ranks by the place where they wait, or waited when a signal ended them: group, its ranks, number."""
    held = [
        rank
        for rank in cluster.ranks
        if rank.collective is not None and not rank.collective.finished and rank.state not in _WAIT_NO_MORE
    ]
    return group_ranks(held, lambda rank: _place(rank.collective))


_SAME_BYTES = frozenset({"all_reduce", "reduce", "broadcast"})
"""Kinds in which every rank gives as much as the others."""


def collective_kind(rank: Rank) -> str:
    """The kind of the collective of a rank, with its size where that is the same on every rank."""
    return "" if rank.collective is None else word_kind(rank.collective.kind, rank.collective.bytes)


def word_kind(kind: str, size: int) -> str:
    """`` `all_reduce` of 64 bytes``, `` `all_gather` ``."""
    word = f"`{kind}`"
    return Message("{kind} of {size} bytes", kind=word, size=f"{size:,}") if kind in _SAME_BYTES else word


_WAIT_NO_MORE = frozenset({"dead", "raised", "ended", "stale"})


def _place(collective: Collective | None) -> Place:
    assert collective is not None
    return collective.group, collective.ranks, collective.sequence


def _why(first: Rank, rank: Rank) -> Why:
    """Why a collective in which another waits does not end, as far as this rank goes; "" if it does its part."""
    if rank.state == "dead" or rank.state == "stopped":
        return rank.state
    begun = _has_begun(rank, first)
    if begun:
        return ""
    if rank.state == "raised":
        return "raised" if raised_itself(rank) else "unknown"
    if begun is None or not _spoke_late_enough(rank, first):
        return "ended" if rank.state == "ended" else "unknown"
    return rank.state if rank.state in ("ended", "terminated") else "not begun"


def _spoke_late_enough(rank: Rank, first: Rank) -> bool:
    """Whether a rank was heard when the other had waited for a while: what it had not begun before, it may have since.

    A file may be older than the wait, and so may one of two jobs that were saved apart.
    """
    if rank.state == "stale" or first.collective is None:
        return False
    if not rank.spoke or not first.spoke:
        return True
    return rank.spoke >= first.spoke - first.collective.seconds / 2


def _has_begun(rank: Rank, first: Rank) -> bool | None:
    """Whether a rank has begun the collective in which another waits; None where nothing that was heard of it tells."""
    group, members, sequence = _place(first.collective)
    held = rank.collective
    if held is not None and (held.group, held.sequence) == (group, sequence) and held.ranks in (members, ()):
        return True
    if held is not None and held.finished and (held.group, held.ranks) == (group, members):
        return held.sequence >= sequence  # the last that it has begun of all, as dumps tell
    begun = [each.begun for each in rank.groups if each.name == group and each.first in (members[0], NOWHERE)]
    if begun:
        return max(begun) >= sequence
    told_by_torch = rank.state == "busy" and rank.groups and all(each.name for each in rank.groups)
    return False if told_by_torch else None  # torch names each group in which the rank has begun any


_PLAINEST_FIRST: tuple[Why, ...] = "dead", "stopped", "not begun", "terminated", "ended"
"""Why others wait."""
_HEADLINES: dict[Why, Callable[..., tuple[Message, Message]]] = {
    "dead": lambda **facts: (
        Message("{wait}, and the process of {others} has ended", **facts),
        Message("{wait}, and the processes of {others} have ended", **facts),
    ),
    "stopped": lambda **facts: (
        Message("{wait}, and {others} is stopped by a signal", **facts),
        Message("{wait}, and {others} are stopped by a signal", **facts),
    ),
    "not begun": lambda **facts: (
        Message("{wait}, which {others} has not begun", **facts),
        Message("{wait}, which {others} have not begun", **facts),
    ),
    "ended": lambda **facts: (
        Message("{wait}, and {others} came to its end", **facts),
        Message("{wait}, and {others} came to their end", **facts),
    ),
    "unknown": lambda **facts: (
        Message("{wait}, and whether {others} has begun it is not known here", **facts),
        Message("{wait}, and whether {others} have begun it is not known here", **facts),
    ),
}
"""How that is said of one rank and of several."""
_FIXES = {
    "dead": Message("see why that process ended: its own output has the reason"),
    "stopped": Message("let it go on: kill -CONT, or fg in its terminal"),
    "ended": Message("see to it that every rank takes as many steps: batches may be uneven over the ranks"),
    "not begun": Message("see to it that every rank comes to this line as often as the others"),
    "unknown": Message("ask where those ranks run, or get their files: devwidget.ranks(folder) on each machine of the job"),
}


def _make_finding(
    cluster: Cluster,
    ranks: list[Rank],
    why: Why,
    others: list[Rank],
    absent: list[Rank],
    unknown: list[Rank],
    behind: list[Rank],
) -> Finding:
    """One collective: who waits, the others by name, where all are that hold it up, of whom nothing is known, who is behind."""
    first = ranks[0]
    collective = first.collective
    assert collective is not None
    seconds = _longest(ranks)
    over = "before" if all(rank.state == "terminated" for rank in ranks) else ""
    how: Why = "not begun" if why == "terminated" else why
    waits = Claim(
        "waiting", name=collective.group, call=collective.kind, count=collective.sequence, ranks=_numbers(ranks), how=over
    )
    absence = dataclasses.replace(waits, kind="absent", how=how, ranks=_numbers(others))
    of_one, of_many = _HEADLINES[how](wait=words_of(waits), others=format_rank_ranges(absence.ranks))
    waited = Message("they had waited for {seconds} s", seconds=round(seconds)) if over else None
    notes = [waited or Message("they have waited for {seconds} s", seconds=round(seconds)), *_whereabouts(cluster, absent)]
    if behind:
        notes.insert(1, words_of(Claim("behind", ranks=_numbers(behind))))
    if unknown and absent:
        notes.append(
            Message("whether {others} began it is not known here", others=format_rank_ranges(rank.number for rank in unknown))
        )
    return Finding(
        "absent-from-collective", "error" if absent else "warning", None,
        of_one if len(others) == 1 else of_many,
        Message("a collective ends when every rank of its group has begun it"),
        fault=line_of(cluster, first),
        birth=next(filter(None, (line_of(cluster, rank) for rank in absent)), None),
        fixes=(Fix(_FIXES[how], "", "choice"), *([Fix(_FIXES["unknown"], "", "choice")] if unknown and absent else [])),
        notes=(*notes, *_whereabouts(cluster, unknown)),
        claims=(waits, absence, *([Claim("behind", ranks=_numbers(behind))] if behind else [])),
    )  # fmt: skip


def _numbers(ranks: list[Rank]) -> tuple[int, ...]:
    return tuple(rank.number for rank in ranks)


def _whereabouts(cluster: Cluster, absent: list[Rank]) -> Iterator[str]:
    for (state, note, stack), ranks in group_ranks(absent, lambda rank: (rank.state, rank.note, rank.stack)).items():
        line = line_of(cluster, ranks[0]) if stack != NOWHERE else None
        at = Message("at {place}: {source}", place=str(line), source=line.text) if line is not None else ""
        how = in_row((Message(state), note, at))
        yield Message("{what}: {place}", what=format_rank_ranges(rank.number for rank in ranks), place=how)
