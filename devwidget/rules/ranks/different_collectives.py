"""different-collectives: at one place in the order of a group, ranks wait in different collectives.

Why: the first that a rank begins meets the first that the others begin, whatever each is: they hang, or mix their bytes.
Bad: `dist.all_reduce(loss)` on rank 0 for its log, where the others are in the `all_gather` of the next layer.
Good: the same collectives in the same order on every rank; a group of its own for what only some ranks do.
Source: https://docs.pytorch.org/docs/stable/distributed.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.ranks.cluster import Cluster, Rank
from devwidget.records.schema.message import Message, in_row
from devwidget.rules.ranks.absent_from_collective import line_of, waiting
from devwidget.rules.ranks.over_ranks import cluster_rule, format_rank_ranges, group_ranks
from devwidget.rules.ranks.rank_claims import answered

_SAME_BYTES = frozenset({"all_reduce", "reduce", "broadcast"})
"""Kinds in which every rank gives as much as the others."""


@cluster_rule("different-collectives")
def check(cluster: Cluster) -> Iterator[Finding]:
    """One finding for each place where ranks do not do the same."""
    for (group, _, sequence), ranks in waiting(cluster).items():
        kinds = group_ranks(ranks, _kind)
        if len(kinds) > 1:
            fewest = sorted(kinds, key=lambda kind: len(kinds[kind]))
            odd = kinds[fewest[0]][0]
            found = in_row(
                Message("{kind} on {ranks}", kind=kind, ranks=format_rank_ranges(rank.number for rank in kinds[kind]))
                for kind in fewest
            )
            yield Finding(
                "different-collectives", "error", None,
                Message("number {sequence} of group `{group}` is {kinds}", sequence=sequence, group=group, kinds=found),
                Message("collectives of one group meet in the order in which each rank begins them"),
                fault=line_of(cluster, odd),
                fixes=(Fix(Message("do the same on every rank, or give what only some do a group of its own"),
                           "group = dist.new_group(ranks)", "choice"),),
                claims=answered(rank.number for rank in ranks),
            )  # fmt: skip


def _kind(rank: Rank) -> str:
    collective = rank.collective
    if collective is None:
        return ""
    kind = f"`{collective.kind}`"
    size = f"{collective.bytes:,}"
    return Message("{kind} of {size} bytes", kind=kind, size=size) if collective.kind in _SAME_BYTES else kind
