"""Running the rules over ranks: the folder is the list, as for traces, and a crash of one rule is shown."""

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
"""Ranks that should hold one model, by the places of their columns."""

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
    """That these ranks were asked and have said what they hold and do."""
    return (RankRole("answered", ranks=tuple(ranks)),)


def answered_by(ranks: Iterable[Rank]) -> tuple[RankRole, ...]:
    """The same of some ranks."""
    return answered(numbers_of(ranks))


def name_ranks(ranks: Iterable[Rank]) -> str:
    """`rank 3`, `ranks 0-7, 12`, and how many where they are scattered."""
    return format_rank_ranges(numbers_of(ranks))


def format_rank_ranges(ranks: Iterable[int]) -> str:
    """The same of their numbers."""
    numbers = list(ranks)
    runs = runs_of(numbers)
    if len(runs) <= _MOST_RUNS:
        return format_runs(runs)
    return Message("{count} ranks, such as {ranks}", count=len(numbers), ranks=format_runs(runs[:_MOST_RUNS]))


def format_values(values: Iterable[tuple[str, Iterable[int]]]) -> str:
    """`0.02 on rank 3, 0.01 on ranks 0-2`."""
    return in_row(Message("{kind} on {ranks}", kind=value, ranks=format_rank_ranges(ranks)) for value, ranks in values)


def format_paths(paths: list[str]) -> str:
    """`a`, `b`, `c` in backticks, and how many more there are."""
    return format_first(paths, _MOST_NAMED)


def format_first(paths: Sequence[str], most: int) -> str:
    """The first of some paths in backticks, and how many more there are."""
    first = ", ".join(f"`{path}`" for path in paths[:most])
    more = len(paths) - most
    if more > 0:
        return Message("{first} and {count} more", first=first, count=more)
    return first


def peers_in(cluster: Cluster, columns: Columns) -> Iterator[Peers]:
    """Ranks that can be compared: of a pipeline those of one stage, whose names may be those of other tensors elsewhere."""
    places = columns.place_ranks()
    cuts = [at for at, axis in enumerate(cluster.axes) if axis.name in _PIPELINES]
    stages = group_by((rank for rank in cluster.ranks if rank.number in places), lambda rank: _find_stage(cluster, rank, cuts))
    for ranks in stages.values():
        by_column = group_by((rank.number for rank in ranks), places.__getitem__)
        yield from _without_stages(columns, by_column)


def _find_stage(cluster: Cluster, rank: Rank, cuts: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What tells the stage of a rank: the numbers that it says itself, and its place on the axes that cut the model."""
    coordinates = cluster.find_coordinates(rank)
    return rank.said.stages, tuple(coordinates[cut] for cut in cuts if coordinates)


def _without_stages(columns: Columns, peers: Peers) -> Iterator[Peers]:
    """The same, in parts where some have modules that others lack and the other way round, as stages have."""
    have = {at: columns.each[at].modules for at in peers}
    if any(all(each <= most for each in have.values()) for most in have.values()):
        yield peers
        return
    for modules in dict.fromkeys(have.values()):
        yield {at: peers[at] for at in peers if have[at] == modules}


STAGES_ARE_FINE = Message("fine if these ranks are stages of a pipeline, which nothing here says")


def are_copies(cluster: Cluster) -> bool:
    """Whether something says that ranks which are compared share a model: stages made by hand may have equal names too."""
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
    """How grave it is that ranks differ: stages of a pipeline may."""
    if are_copies(cluster):
        return "error"
    return "warning"


def notes_on_stages(cluster: Cluster) -> tuple[str, ...]:
    """That ranks may be stages, where nothing says that they are copies."""
    if are_copies(cluster):
        return ()
    return (STAGES_ARE_FINE,)
