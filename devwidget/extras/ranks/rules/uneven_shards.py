"""uneven-shards: ranks that share a model hold shards of very different sizes.

Why: the largest shard sets the memory that every GPU needs, and the other ranks wait for it.
Bad: `fully_shard` of layers with 5 rows over 4 ranks: 2, 2, 1 and none.
Good: shard dimensions that are divisible by the number of ranks: `fully_shard(..., shard_placement_fn=...)`.
Source: https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import Cluster, group_by
from devwidget.extras.ranks.records.columns import Column, Columns, lay_out_columns
from devwidget.extras.ranks.rules.over_ranks import answered, cluster_rule, format_rank_ranges
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message

LEAST_SHARE, LEAST_BYTES = 0.1, 2**20
"""Shards differ by a few rows in every model; differences below a tenth of the largest, or below 1 MiB, do not matter."""


@cluster_rule("uneven-shards")
def check(cluster: Cluster) -> Iterator[Finding]:
    """Yield one finding for all ranks with the same modules; other pipeline stages are not compared."""
    columns = lay_out_columns(cluster)
    for same in group_by(columns.each, lambda column: column.modules).values():
        # Those without any share are a finding of their own.
        sized = list(filter(_sharded_bytes, same))
        if not sized:
            continue
        most, least = max(sized, key=_sharded_bytes), min(sized, key=_sharded_bytes)
        spread = _sharded_bytes(most) - _sharded_bytes(least)
        if spread >= LEAST_BYTES and spread >= LEAST_SHARE * _sharded_bytes(most):
            yield _make_finding(columns, most, least)


def _sharded_bytes(column: Column) -> int:
    return sum(tensor.local_bytes for tensor in column.tensors if tensor.is_sharded)


def _make_finding(columns: Columns, most: Column, least: Column) -> Finding:
    facts = {"bytes": f"{_sharded_bytes(most):,}", "least": f"{_sharded_bytes(least):,}"}
    return Finding(
        "uneven-shards", "warning", None,
        Message.of(len(most.ranks), "{ranks} holds {bytes} bytes of shards, {others} {least}",
                   "{ranks} hold {bytes} bytes of shards, {others} {least}",
                   ranks=format_rank_ranges(most.ranks), others=format_rank_ranges(least.ranks), **facts),
        Message("every GPU needs memory for the largest shard, and every rank waits for the rank with the most work"),
        fixes=(Fix(Message("choose sizes divisible by the number of ranks, or shard another dimension"),
                   "fully_shard(model, shard_placement_fn=lambda parameter: Shard(1))", "choice"),),
        notes=tuple(_tell_most_uneven(columns, most, least)),
        roles=answered((*most.ranks, *least.ranks)),
    )  # fmt: skip


def _tell_most_uneven(columns: Columns, most: Column, least: Column) -> Iterator[str]:
    small = {(module, tensor.name): tensor for module, holding in least.holdings for tensor in holding}
    largest, found = 0, None
    for module, holding in most.holdings:
        for tensor in holding:
            other = small.get((module, tensor.name))
            if other is not None and tensor.local_shape and other.local_shape:
                spread = tensor.local_bytes - other.local_bytes
                if spread > largest:
                    largest, found = spread, (module, tensor.name, tensor.local_shape[0], other.local_shape[0])
    if found is not None:
        module, name, rows, others = found
        path = columns.tensor_path(module, name)
        yield Message("largest difference: `{path}` with {rows} rows against {other}", path=path, rows=rows, other=others)
