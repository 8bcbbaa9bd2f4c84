"""drifted-copies: parameters that every rank has whole are not equal any more.

Why: data parallelism never compares them: copies that have drifted apart stay so, and each rank trains another model.
Bad: a parameter made with another seed on each rank after the model was wrapped, or changed outside the optimizer.
Good: build before `DistributedDataParallel(model)`, which copies rank 0 to all; then change it by the optimizer alone.
Source: https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.ranks.cluster import Cluster
from devwidget.records.schema.message import Message
from devwidget.rules.ranks.over_ranks import cluster_rule, grouped, named, told


@cluster_rule("drifted-copies")
def check(cluster: Cluster) -> Iterator[Finding]:
    """One finding for all of them; ranks are compared with those that have taken as many steps."""
    for step, ranks in grouped((rank for rank in cluster.ranks if rank.checksums), lambda rank: rank.step).items():
        copies: dict[str, dict[str, list[int]]] = {}
        for rank in ranks:
            for path, checksum in rank.checksums:
                copies.setdefault(path, {}).setdefault(checksum, []).append(rank.number)
        drifted = {path: values for path, values in copies.items() if len(values) > 1}
        if drifted:
            yield _finding(drifted, step)


def _finding(drifted: dict[str, dict[str, list[int]]], step: int) -> Finding:
    paths = list(drifted)
    fewest = min(drifted[paths[0]].values(), key=len)
    facts = {"paths": named(paths), "ranks": told(fewest), "step": step}
    return Finding(
        "drifted-copies", "error", paths[0].rpartition(".")[0],
        Message("{paths} on {ranks} differs from the others after step {step}", **facts)
        if len(paths) == 1
        else Message("{paths} on {ranks} differ from the others after step {step}", **facts),
        Message("each rank adds the same gradients to its own copy, so copies that differ once differ for ever"),
        fixes=(Fix(Message("begin with equal copies: wrap the model last"), "", "choice"),),
    )  # fmt: skip
