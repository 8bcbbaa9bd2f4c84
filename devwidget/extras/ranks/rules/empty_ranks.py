"""empty-ranks: some ranks hold no parameter at all, and still take part in every step.

Why: `fully_shard` cuts the first dimension in equal chunks, so the last ranks get nothing where it has fewer rows than ranks.
Bad: 1,000 rows over 32 ranks times 8: ceil(125 / 32) = 4 rows each, and nothing from the 33rd part on.
Good: a mesh `(replicate, shard)` whose inner axis is no longer than the rows of the layers; `fully_shard` takes it.
Source: https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.rules.over_ranks import cluster_rule, format_rank_ranges, holdings_of, ranks_of
from devwidget.extras.ranks.rules.rank_claims import answered
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message


@cluster_rule("empty-ranks")
def check(cluster: Cluster) -> Iterator[Finding]:
    """One finding for all of them."""
    parameters = [_parameters(cluster, at) for at in range(len(cluster.placements))]
    empty = [rank for at, (size, count) in enumerate(parameters) if count and not size for rank in ranks_of(cluster, at)]
    if not empty or not any(size for size, _ in parameters):
        return
    rows = max((_rows(cluster, at) for at in range(len(cluster.placements))), default=0)
    fix = 'mesh = init_device_mesh("cuda", (replicas, shards), mesh_dim_names=("replicate", "shard"))'
    yield Finding(
        "empty-ranks", "warning", "",
        Message("{ranks} of {count} holds no parameter", ranks=format_rank_ranges(empty), count=len(cluster.ranks))
        if len(empty) == 1
        else Message("{ranks} of {count} hold no parameter", ranks=format_rank_ranges(empty), count=len(cluster.ranks)),
        Message("a dimension is cut in chunks of equal size, and there are fewer rows than ranks to give them to"),
        fixes=(Fix(Message("shard over fewer ranks, and keep copies of the shards on the others"), fix, "choice"),),
        notes=(Message("the longest first dimension that is cut has {rows} rows", rows=f"{rows:,}"),),
        claims=answered(empty),
    )  # fmt: skip


def _parameters(cluster: Cluster, placement: int) -> tuple[int, int]:
    """Bytes and number of the parameters that one rank holds."""
    held = [tensor for _, holding in holdings_of(cluster, placement) for tensor in holding if tensor.role == "parameter"]
    return sum(tensor.local_bytes for tensor in held), sum(tensor.bytes > 0 for tensor in held)


def _rows(cluster: Cluster, placement: int) -> int:
    held = [tensor for _, holding in holdings_of(cluster, placement) for tensor in holding if tensor.is_sharded]
    return max((tensor.shape[0] for tensor in held if tensor.shape), default=0)
