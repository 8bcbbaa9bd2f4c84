"""Running the rules over ranks: the folder is the list, as for traces, and a crash of one rule is shown."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from devwidget.extras.ranks.records.cluster import IN_A_ROW, NOWHERE, Cluster, Rank
from devwidget.extras.ranks.records.rank import Holding
from devwidget.extras.ranks.rules.rank_claims import without_unheard
from devwidget.records.finding import Finding
from devwidget.records.runs import format_runs, numbers_in, runs_of
from devwidget.records.schema.message import Message
from devwidget.rules.registry import import_rules, run_rule, worst_first

Check = Callable[[Cluster], Iterator[Finding]]
Group = TypeVar("Group", bound=Hashable)

Peers = Mapping[int, Sequence[int]]
"""Ranks that should hold one model, by their placements."""

_MOST_RUNS, _MOST_NAMED = 6, 3
_PIPELINES = frozenset({"pp", "pipe", "pipeline", "stage"})
"""Names of an axis along which each rank has a part of the model of its own."""


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterRule:
    """One kind of finding over ranks; `docs/build_findings.py` asks for its `kind` and `check`."""

    kind: str
    check: Check


_rules: dict[str, ClusterRule] = {}


def cluster_rule(kind: str) -> Callable[[Check], Check]:
    """Register a check under the name of its kind."""

    def keep(check: Check) -> Check:
        _rules[kind] = ClusterRule(kind, check)
        return check

    return keep


@functools.cache
def all_cluster_rules() -> tuple[ClusterRule, ...]:
    """Every rule of this folder, by name."""
    import_rules("devwidget.extras.ranks.rules")
    import_rules("devwidget.extras.ranks.rules.waiting")
    return tuple(_rules[kind] for kind in sorted(_rules))


def judge_cluster(cluster: Cluster, rules: Iterable[ClusterRule] | None = None) -> Cluster:
    """The cluster with its findings, worst first."""
    found: list[Finding] = []
    checked: list[str] = []
    not_checked: list[str] = []
    for each in all_cluster_rules() if rules is None else rules:
        told_by_it, crash = run_rule(each.kind, each.check, cluster)
        found += told_by_it
        if crash is None:
            checked.append(each.kind)
        else:
            not_checked.append(crash)
    founded, unheard = without_unheard(cluster, found)
    not_checked += unheard
    return dataclasses.replace(cluster, findings=worst_first(founded), checked=tuple(checked), not_checked=tuple(not_checked))


def format_rank_ranges(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-7, 12`, and how many where they are scattered."""
    numbers = list(ranks)
    runs = runs_of(numbers)
    if len(runs) <= _MOST_RUNS:
        return format_runs(runs)
    return Message("{count} ranks, such as {ranks}", count=len(numbers), ranks=format_runs(runs[:_MOST_RUNS]))


def format_paths(paths: list[str]) -> str:
    """`a`, `b`, `c` in backticks, and how many more there are."""
    first = ", ".join(f"`{path}`" for path in paths[:_MOST_NAMED])
    more = len(paths) - _MOST_NAMED
    return Message("{first} and {count} more", first=first, count=more) if more > 0 else first


def ranks_of(cluster: Cluster, placement: int) -> list[int]:
    """The ranks of one placement."""
    return list(numbers_in(cluster.placements[placement].ranks))


def peers_in(cluster: Cluster) -> Iterator[Peers]:
    """Ranks that can be compared: of a pipeline those of one stage, whose names may be those of other tensors elsewhere."""
    cuts = [place for place, axis in enumerate(cluster.axes) if axis.name in _PIPELINES]
    said = [rank for rank in cluster.ranks if rank.placement != NOWHERE]
    stages = group_ranks(said, lambda rank: (rank.stages, tuple(rank.coordinates[cut] for cut in cuts if rank.coordinates)))
    for ranks in stages.values():
        placements = {
            at: [rank.number for rank in same] for at, same in group_ranks(ranks, lambda rank: rank.placement).items()
        }
        yield from _without_stages(cluster, placements)


def _without_stages(cluster: Cluster, peers: Peers) -> Iterator[Peers]:
    """The same, in parts where some have modules that others lack and the other way round, as stages have."""
    have = {at: modules_of(cluster, at) for at in peers}
    if any(all(each <= most for each in have.values()) for most in have.values()):
        yield peers
        return
    for modules in dict.fromkeys(have.values()):
        yield {at: peers[at] for at in peers if have[at] == modules}


STAGES_ARE_FINE = Message("fine if these ranks are stages of a pipeline, which nothing here says")


def are_copies(cluster: Cluster) -> bool:
    """Whether something says that ranks which are compared share a model: stages made by hand may have equal names too."""
    if any(axis.name != IN_A_ROW for axis in cluster.axes) or any(rank.stages for rank in cluster.ranks):
        return True
    return any(module.wrapper for module in cluster.modules) or any(
        tensor.placement for holding in cluster.holdings for tensor in holding
    )


def modules_of(cluster: Cluster, placement: int) -> frozenset[int]:
    """The modules that the ranks of a placement have."""
    return frozenset(module for module, at in enumerate(cluster.placements[placement].held) if at != NOWHERE)


Item = TypeVar("Item")


def group_ranks(ranks: Iterable[Rank], key: Callable[[Rank], Group]) -> dict[Group, list[Rank]]:
    """Ranks by something of them."""
    return group_by(ranks, key)


def group_by(items: Iterable[Item], key: Callable[[Item], Group]) -> dict[Group, list[Item]]:
    """Things by something of them."""
    found: dict[Group, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def holdings_of(cluster: Cluster, placement: int) -> Iterator[tuple[int, Holding]]:
    """What the ranks of a placement hold, by module."""
    for module, at in enumerate(cluster.placements[placement].held):
        if at != NOWHERE:
            yield module, cluster.holdings[at]


def tensor_path(cluster: Cluster, module: int, name: str) -> str:
    """`blocks.0.up.weight`."""
    path = cluster.modules[module].path
    return f"{path}.{name}" if path else name
