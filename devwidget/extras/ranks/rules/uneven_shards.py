"""uneven-shards: ranks that share a model hold shares of very different size.

Why: the largest share decides how much memory every GPU needs, and the others wait for the rank that has most to do.
Bad: `fully_shard` of layers with 5 rows over 4 ranks: 2, 2, 1 and none.
Good: dimensions that the number of ranks divides, or another dimension to cut: `fully_shard(..., shard_placement_fn=...)`.
Source: https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import NOWHERE, Cluster
from devwidget.extras.ranks.rules.over_ranks import cluster_rule, format_rank_ranges, holdings_of, ranks_of, tensor_path
from devwidget.extras.ranks.rules.rank_claims import answered
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message

LEAST_SHARE, LEAST_BYTES = 0.1, 2**20
"""Shares differ by a row or two in every model; less than a tenth of the largest, or than one MiB, changes no plan."""


@cluster_rule("uneven-shards")
def check(cluster: Cluster) -> Iterator[Finding]:
    """One finding for all ranks with the same modules; those of other pipeline stages are not compared."""
    stages: dict[tuple[bool, ...], list[int]] = {}
    for at, placement in enumerate(cluster.placements):
        stages.setdefault(tuple(each != NOWHERE for each in placement.held), []).append(at)
    for places in stages.values():
        sizes = {at: _sharded_bytes(cluster, at) for at in places}
        filled = {at: size for at, size in sizes.items() if size}  # those without any are a finding of their own
        if not filled:
            continue
        most, least = max(filled, key=filled.__getitem__), min(filled, key=filled.__getitem__)
        spread = filled[most] - filled[least]
        if spread >= LEAST_BYTES and spread >= LEAST_SHARE * filled[most]:
            yield _make_finding(cluster, most, least, filled)


def _sharded_bytes(cluster: Cluster, placement: int) -> int:
    return sum(t.local_bytes for _, holding in holdings_of(cluster, placement) for t in holding if t.is_sharded)


def _make_finding(cluster: Cluster, most: int, least: int, sizes: dict[int, int]) -> Finding:
    large, small = format_rank_ranges(ranks_of(cluster, most)), format_rank_ranges(ranks_of(cluster, least))
    facts = {"ranks": large, "bytes": f"{sizes[most]:,}", "others": small, "least": f"{sizes[least]:,}"}
    worst, rows, other = _worst(cluster, most, least)
    return Finding(
        "uneven-shards", "warning", None,
        Message("{ranks} holds {bytes} bytes of shards, {others} {least}", **facts)
        if len(ranks_of(cluster, most)) == 1
        else Message("{ranks} hold {bytes} bytes of shards, {others} {least}", **facts),
        Message("every GPU needs room for the largest share, and a step ends when the rank with most to do is ready"),
        fixes=(Fix(Message("choose sizes that the number of ranks divides, or cut another dimension"),
                   "fully_shard(model, shard_placement_fn=lambda parameter: Shard(1))", "choice"),),
        notes=(Message("most of it comes from `{path}`: {rows} against {other} rows", path=worst, rows=rows, other=other),)
        if worst
        else (),
        claims=answered((*ranks_of(cluster, most), *ranks_of(cluster, least))),
    )  # fmt: skip


def _worst(cluster: Cluster, most: int, least: int) -> tuple[str, int, int]:
    """The tensor of which the shares differ most."""
    small = {(module, t.name): t for module, holding in holdings_of(cluster, least) for t in holding}
    found = [
        (
            tensor.local_bytes - other.local_bytes,
            tensor_path(cluster, module, tensor.name),
            tensor.local_shape,
            other.local_shape,
        )
        for module, holding in holdings_of(cluster, most)
        for tensor in holding
        if (other := small.get((module, tensor.name))) is not None and tensor.local_shape and other.local_shape
    ]
    _, path, here, there = max(found, default=(0, "", None, None), key=lambda each: each[0])
    return path, here[0] if here else 0, there[0] if there else 0
