"""left-unsharded: parameters that FSDP gathered stay gathered while nothing runs.

Why: a gathered layer takes as much memory as without sharding.
Bad: `model.layers[0].unshard()` for an evaluation, without `reshard()` after it.
Good: `module.reshard()` afterwards, or leave it to `forward`.
Source: https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import Cluster, group_by
from devwidget.extras.ranks.rules.over_ranks import answered_by, cluster_rule, format_first, name_ranks
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message


@cluster_rule("left-unsharded")
def check(cluster: Cluster) -> Iterator[Finding]:
    """Yield one finding for all ranks with the same unsharded modules."""
    whole = [rank for rank in cluster.ranks if rank.said.unsharded]
    for paths, ranks in group_by(whole, lambda rank: rank.said.unsharded).items():
        yield Finding(
            "left-unsharded", "warning", paths[0],
            Message.of(len(paths), "{modules} is unsharded on {ranks} while neither forward nor backward runs",
                       "{modules} are unsharded on {ranks} while neither forward nor backward runs",
                       modules=format_first(paths, 1), ranks=name_ranks(ranks)),
            Message("an unsharded layer takes its share of memory times the number of ranks"),
            also=paths[1:],
            fixes=(Fix(Message("reshard it"), f"model.get_submodule({paths[0]!r}).reshard()"),),
            roles=answered_by(ranks),
        )  # fmt: skip
