"""plain-among-sharded: parameters that `fully_shard` was not given, in a model that it cuts.

Why: FSDP reduces the gradients of what it was given; all other parameters are trained on each rank by its own batch alone.
Bad: `for layer in model.layers: fully_shard(layer)` and nothing more.
Good: `fully_shard(model)` after its layers, which takes what is left.
Source: https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.rules.over_ranks import (
    cluster_rule,
    format_paths,
    format_rank_ranges,
    holdings_of,
    ranks_of,
    tensor_path,
)
from devwidget.extras.ranks.rules.rank_claims import answered
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message

WRAPPER = "FSDP2"
"""What capture calls a module that `fully_shard` was given."""


@cluster_rule("plain-among-sharded")
def check(cluster: Cluster) -> Iterator[Finding]:
    """One finding for all ranks that have the same ones; tensor parallelism alone leaves norms plain, and means it."""
    given = [module.path for module in cluster.modules if module.wrapper == WRAPPER]
    if not given or "" in given:
        return
    found: dict[tuple[tuple[int, str], ...], list[int]] = {}
    for at in range(len(cluster.placements)):
        plain = tuple(
            (module, tensor.name)
            for module, holding in holdings_of(cluster, at)
            for tensor in holding
            if tensor.role == "parameter"
            and tensor.requires_grad
            and not tensor.placement
            and not _below(cluster, module, given)
        )
        if plain:
            found.setdefault(plain, []).extend(ranks_of(cluster, at))
    for plain, ranks in found.items():
        yield _make_finding(cluster, plain, ranks)


def _below(cluster: Cluster, module: int, given: list[str]) -> bool:
    path = cluster.modules[module].path
    return any(path == each or path.startswith(f"{each}.") for each in given)


def _make_finding(cluster: Cluster, plain: tuple[tuple[int, str], ...], ranks: list[int]) -> Finding:
    paths = [tensor_path(cluster, *place) for place in plain]
    facts = {"paths": format_paths(paths), "ranks": format_rank_ranges(ranks)}
    module = cluster.modules[plain[0][0]]
    return Finding(
        "plain-among-sharded", "warning", module.path,
        Message("{paths} is a plain tensor on {ranks}, in a model that `fully_shard` cuts", **facts)
        if len(paths) == 1
        else Message("{paths} are plain tensors on {ranks}, in a model that `fully_shard` cuts", **facts),
        Message("nobody adds up their gradients over the ranks, and an operation with a DTensor refuses a plain tensor"),
        fault=module.defined,
        fixes=(Fix(Message("give it the root too, after its layers"), "fully_shard(model)"),),
        notes=(Message("fine if you synchronise them yourself, as with `ignored_params`"),),
        claims=answered(ranks),
    )  # fmt: skip
