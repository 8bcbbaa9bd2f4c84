"""left-unsharded: modules whose parameters FSDP has gathered stay whole while nothing runs.

Why: whole, a layer takes as many times its share as there are ranks; that is what sharding was to save.
Bad: `model.layers[0].unshard()` for an evaluation, and no `reshard()` after it.
Good: `module.reshard()` when it is done, or leave it to `forward`.
Source: https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.rules.over_ranks import cluster_rule, format_rank_ranges, group_ranks
from devwidget.extras.ranks.rules.rank_claims import answered
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message


@cluster_rule("left-unsharded")
def check(cluster: Cluster) -> Iterator[Finding]:
    """One finding for all ranks with the same modules."""
    for paths, ranks in group_ranks(cluster.ranks, lambda rank: rank.unsharded).items():
        if paths:
            first = f"`{paths[0]}`"
            named = Message("{first} and {count} more", first=first, count=len(paths) - 1) if len(paths) > 1 else first
            facts = {"modules": named, "ranks": format_rank_ranges(rank.number for rank in ranks)}
            yield Finding(
                "left-unsharded", "warning", paths[0],
                Message("{modules} stays whole on {ranks} while neither forward nor backward runs", **facts)
                if len(paths) == 1
                else Message("{modules} stay whole on {ranks} while neither forward nor backward runs", **facts),
                Message("a layer that is whole takes as many times its share as there are ranks"),
                also=paths[1:],
                fixes=(Fix(Message("shard it again"), f"model.get_submodule({paths[0]!r}).reshard()"),),
                claims=answered(rank.number for rank in ranks),
            )  # fmt: skip
