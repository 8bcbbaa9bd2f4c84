"""empty-ranks: some ranks hold no parameters and still take part in every step.

Why: `fully_shard` splits the first dimension into equal chunks; with fewer rows than ranks the last ranks get none.
Bad: `fully_shard` of layers with 5 rows over 8 ranks: ranks 5, 6 and 7 get nothing.
Good: a mesh `(replicate, shard)` whose inner dimension is at most the number of rows.
Source: https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.records.columns import Column, lay_out_columns
from devwidget.extras.ranks.records.rank import LocalTensor
from devwidget.extras.ranks.rules.over_ranks import answered, cluster_rule, format_rank_ranges
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message


@cluster_rule("empty-ranks")
def check(cluster: Cluster) -> Iterator[Finding]:
    """Yield one finding for all ranks without parameters."""
    columns = lay_out_columns(cluster).each
    empty: list[int] = []
    for column in columns:
        if _is_empty(column):
            empty += column.ranks
    if not empty or not any(map(_held_bytes, columns)):
        return
    rows = 0
    for tensor in itertools.chain(*(column.tensors for column in columns)):
        if tensor.is_sharded and tensor.shape:
            rows = max(rows, tensor.shape[0])
    fix = 'mesh = init_device_mesh("cuda", (replicas, shards), mesh_dim_names=("replicate", "shard"))'
    yield Finding(
        "empty-ranks", "warning", "",
        Message.of(len(empty), "{ranks} of {count} holds no parameter", "{ranks} of {count} hold no parameter",
                   ranks=format_rank_ranges(empty), count=len(cluster.ranks)),
        Message("a dimension is split into equal chunks, and it has fewer rows than there are ranks"),
        fixes=(Fix(Message("shard over fewer ranks and replicate the shards on the others"), fix, "choice"),),
        notes=(Message("the longest sharded first dimension has {rows} rows", rows=f"{rows:,}"),),
        roles=answered(empty),
    )  # fmt: skip


def _parameters(column: Column) -> list[LocalTensor]:
    return [tensor for tensor in column.tensors if tensor.role == "parameter"]


def _held_bytes(column: Column) -> int:
    return sum(tensor.local_bytes for tensor in _parameters(column))


def _is_empty(column: Column) -> bool:
    return any(tensor.bytes for tensor in _parameters(column)) and not _held_bytes(column)
