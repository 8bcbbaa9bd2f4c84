"""Run the rules over ranks. A rule that crashes is reported."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from devwidget.extras.ranks.records.cluster import IN_A_ROW, Cluster, Rank, group_by, numbers_of
from devwidget.extras.ranks.records.columns import Columns
from devwidget.extras.ranks.records.rank import RankModel
from devwidget.records.finding import Finding, RankRole, Severity
from devwidget.records.runs import format_runs, runs_of
from devwidget.records.schema.message import Message, in_row
from devwidget.rules.registry import import_rules, run_rule, worst_first

Check = Callable[[Cluster], Iterator[Finding]]

Peers = Mapping[int, Sequence[int]]
"""Ranks that should hold the same model, by the index of their column."""

_MOST_RUNS = 6
_PIPELINES = frozenset({"pp", "pipe", "pipeline", "stage"})
"""Names of axes along which each rank has its own part of the model."""


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterRule:
    """One kind of finding over ranks; `docs/build_findings.py` reads its `kind` and `check`."""

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
    """Return every rule of this folder, by name."""
    import_rules("devwidget.extras.ranks.rules")
    import_rules("devwidget.extras.ranks.rules.waiting")
    return tuple(map(_rules.__getitem__, sorted(_rules)))


def judge_cluster(cluster: Cluster, rules: Iterable[ClusterRule] | None = None) -> Cluster:
    """Return the cluster with its findings, worst first."""
    found: list[Finding] = []
    checked: list[str] = []
    not_checked: list[str] = []
    if rules is None:
        rules = all_cluster_rules()
    for each in rules:
        told_by_it, crash = run_rule(each.kind, each.check, cluster)
        found += told_by_it
        if crash is None:
            checked.append(each.kind)
        else:
            not_checked.append(crash)
    return dataclasses.replace(cluster, findings=worst_first(found), checked=tuple(checked), not_checked=tuple(not_checked))


def answered(ranks: Iterable[int]) -> tuple[RankRole, ...]:
    """Return the role of ranks that reported what they hold and do."""
    return (RankRole("answered", ranks=tuple(ranks)),)


def answered_by(ranks: Iterable[Rank]) -> tuple[RankRole, ...]:
    """Return the same for some ranks."""
    return answered(numbers_of(ranks))


def name_ranks(ranks: Iterable[Rank]) -> str:
    """Return `rank 3`, `ranks 0-7, 12`, or their number if they are scattered."""
    return format_rank_ranges(numbers_of(ranks))


def format_rank_ranges(ranks: Iterable[int]) -> str:
    """Return the same for numbers of ranks."""
    numbers = list(ranks)
    runs = runs_of(numbers)
    if len(runs) <= _MOST_RUNS:
        return format_runs(runs)
    return Message("{count} ranks, such as {ranks}", count=len(numbers), ranks=format_runs(runs[:_MOST_RUNS]))


def format_values(values: Iterable[tuple[str, Iterable[int]]]) -> str:
    """Return `0.02 on rank 3, 0.01 on ranks 0-2`."""
    return in_row(Message("{kind} on {ranks}", kind=value, ranks=format_rank_ranges(ranks)) for value, ranks in values)


def format_first(paths: Sequence[str], most: int = 3) -> str:
    """Return the first of some paths in backticks, and how many more there are."""
    first = ", ".join(f"`{path}`" for path in paths[:most])
    more = len(paths) - most
    if more > 0:
        return Message("{first} and {count} more", first=first, count=more)
    return first


def peers_in(cluster: Cluster, columns: Columns) -> Iterator[Peers]:
    """Yield comparable ranks: in a pipeline the ranks of one stage, because stages may use the same names."""
    places = columns.place_ranks()
    cuts = [at for at, axis in enumerate(cluster.axes) if axis.name in _PIPELINES]
    stages = group_by((rank for rank in cluster.ranks if rank.number in places), lambda rank: _find_stage(cluster, rank, cuts))
    for ranks in stages.values():
        by_column = group_by(numbers_of(ranks), places.__getitem__)
        yield from _without_stages(columns, by_column)


def _find_stage(cluster: Cluster, rank: Rank, cuts: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return what identifies the stage of a rank: its own numbers, and its coordinates on the axes that split the model."""
    coordinates = cluster.find_coordinates(rank)
    return rank.said.stages, tuple(coordinates[cut] for cut in cuts if coordinates)


def _without_stages(columns: Columns, peers: Peers) -> Iterator[Peers]:
    """Yield ranks with the same modules if some have modules that others lack and vice versa, as stages do."""
    have = {at: columns.each[at].modules for at in peers}
    if any(all(each <= most for each in have.values()) for most in have.values()):
        yield peers
        return
    for modules in dict.fromkeys(have.values()):
        yield {at: peers[at] for at in peers if have[at] == modules}


STAGES_ARE_FINE = Message("ignore this if these ranks are pipeline stages")


def are_copies(cluster: Cluster) -> bool:
    """Return whether ranks are known to share a model; stages made by hand may use the same names."""
    if any(axis.name != IN_A_ROW for axis in cluster.axes):
        return True
    models: dict[int, RankModel] = {}
    for rank in cluster.ranks:
        if rank.said.stages:
            return True
        if rank.said.model is not None:
            models[id(rank.said.model)] = rank.said.model
    return any(model.is_distributed for model in models.values())


def severity_among(cluster: Cluster) -> Severity:
    """Return the severity of a difference: a warning where ranks may be pipeline stages."""
    return "error" if are_copies(cluster) else "warning"


def notes_on_stages(cluster: Cluster) -> tuple[str, ...]:
    """Yield a note that ranks may be stages, unless they are known to be copies."""
    if are_copies(cluster):
        return ()
    return (STAGES_ARE_FINE,)
