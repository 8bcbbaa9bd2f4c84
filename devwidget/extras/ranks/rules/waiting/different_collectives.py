"""different-collectives: ranks of one group wait in different collectives at the same position.

Why: calls are matched only by their order: mismatched calls hang or mix their data.
Bad: `dist.all_reduce(loss)` on rank 0 for its log while the others run the `all_gather` of the next layer.
Good: the same collectives in the same order on every rank; a separate group for what only some ranks do.
Source: https://docs.pytorch.org/docs/stable/distributed.html
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import Cluster, Rank, group_by, numbers_of
from devwidget.extras.ranks.records.rank import CollectivePlace
from devwidget.extras.ranks.rules.over_ranks import answered, cluster_rule, format_values
from devwidget.extras.ranks.rules.waiting.absent_from_collective import collective_kind, waiting, word_kind
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message


@cluster_rule("different-collectives")
def check(cluster: Cluster) -> Iterator[Finding]:
    """Yield one finding for each place where ranks call different collectives; in an ended job only the first place."""
    found: list[Finding] = []
    for place, ranks in waiting(cluster).items():
        found += _judge_waiting(cluster, place, ranks)
    yield from found or _judge_last(cluster)


def _judge_waiting(cluster: Cluster, place: CollectivePlace, ranks: list[Rank]) -> Iterator[Finding]:
    kinds = {kind: numbers_of(same) for kind, same in group_by(ranks, collective_kind).items()}
    if len(kinds) < 2:
        return
    there = set(numbers_of(ranks))
    for rank in cluster.ranks:
        for past in rank.said.last:
            if rank.number not in there and past.is_at(place):
                kinds.setdefault(word_kind(past.kind, past.bytes), []).append(rank.number)
    # Where as many do one thing as the other, those that come in a moment tell which is odd.
    if _has_fewest(kinds) or any(rank.hangs or rank.state == "hung" for rank in ranks):
        yield _make_finding(cluster, place.group, place.sequence, kinds)


def _has_fewest(kinds: dict[str, list[int]]) -> bool:
    fewest, second, *_ = sorted(map(len, kinds.values()))
    return fewest < second


def _judge_last(cluster: Cluster) -> Iterator[Finding]:
    """Return the first place where the last collectives of ranks differ; at their end ranks may wait in a later one."""
    places: dict[tuple[str, int, int, int], dict[str, list[int]]] = {}
    for rank in cluster.ranks:
        for each in rank.said.last:
            kinds = places.setdefault(each.key, {})
            kinds.setdefault(word_kind(each.kind, each.bytes), []).append(rank.number)
    first: dict[tuple[object, ...], tuple[str, int, int, int]] = {}
    for place, kinds in places.items():
        if len(kinds) > 1:
            first[place[:3]] = min(place, first.get(place[:3], place))
    for place in first.values():
        yield _make_finding(cluster, place[0], place[3], places[place])


def _make_finding(cluster: Cluster, group: str, sequence: int, kinds: dict[str, list[int]]) -> Finding:
    """Return the finding. The rarest kind is named first, with its line; without a rarest kind there is no line."""
    ordered = sorted(kinds, key=lambda kind: len(kinds[kind]))
    line = None
    if _has_fewest(kinds):
        line = cluster.ranks[kinds[ordered[0]][0]].line
    found = format_values((kind, sorted(kinds[kind])) for kind in ordered)
    return Finding(
        "different-collectives", "error", None,
        Message("number {sequence} of group `{group}` is {kinds}", sequence=sequence, group=group, kinds=found),
        Message("collectives of a group are matched in the order in which each rank calls them"),
        fault=line,
        fixes=(Fix(Message("call the same collectives on every rank, or use a separate group for calls of some ranks"),
                   "group = dist.new_group(ranks)", "choice"),),
        roles=answered(itertools.chain(*kinds.values())),
    )  # fmt: skip
