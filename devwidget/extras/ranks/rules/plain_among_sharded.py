"""plain-among-sharded: a sharded model has parameters that `fully_shard` was not applied to.

Why: FSDP reduces only the gradients of sharded parameters; each rank trains the others on its own batch only.
Bad: `for layer in model.layers: fully_shard(layer)` and nothing more.
Good: `fully_shard(model)` after its layers, which takes the rest.
Source: https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.records.columns import Columns, lay_out_columns
from devwidget.extras.ranks.records.rank import LocalTensor
from devwidget.extras.ranks.rules.over_ranks import answered, cluster_rule, format_first, format_rank_ranges
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message

WRAPPER = "FSDP2"
"""The name in records for a module with `fully_shard`."""


@cluster_rule("plain-among-sharded")
def check(cluster: Cluster) -> Iterator[Finding]:
    """Yield one finding for all ranks with the same plain tensors. Tensor parallelism alone leaves norms plain on purpose."""
    columns = lay_out_columns(cluster)
    wrapped = [module.path for module in columns.modules if module.wrapper == WRAPPER]
    if not wrapped or "" in wrapped:
        return
    above = tuple(f"{path}." for path in wrapped)
    outside = [at for at, module in enumerate(columns.modules) if not f"{module.path}.".startswith(above)]
    found: dict[tuple[tuple[int, str], ...], list[int]] = {}
    for column in columns.each:
        plain = tuple((module, tensor.name) for module in outside for tensor in column.held[module] or () if _is_plain(tensor))
        if plain:
            found.setdefault(plain, []).extend(column.ranks)
    for plain, ranks in found.items():
        yield _make_finding(columns, plain, ranks)


def _is_plain(tensor: LocalTensor) -> bool:
    return tensor.role == "parameter" and tensor.requires_grad and not tensor.placement


def _make_finding(columns: Columns, plain: tuple[tuple[int, str], ...], ranks: list[int]) -> Finding:
    paths = [columns.tensor_path(*place) for place in plain]
    module = columns.modules[plain[0][0]]
    return Finding(
        "plain-among-sharded", "warning", module.path,
        Message.of(len(paths), "{paths} is a plain tensor on {ranks}, in a model sharded by `fully_shard`",
                   "{paths} are plain tensors on {ranks}, in a model sharded by `fully_shard`",
                   paths=format_first(paths), ranks=format_rank_ranges(ranks)),
        Message("their gradients are not averaged over the ranks, and an op on a DTensor rejects a plain tensor"),
        fault=module.defined,
        fixes=(Fix(Message("call `fully_shard` on the root too, after its layers"), "fully_shard(model)"),),
        notes=(Message("ignore this if you synchronize them yourself, as with `ignored_params`"),),
        roles=answered(ranks),
    )  # fmt: skip
