"""drifted-copies: parameters that every rank has whole are not equal any more.

Why: data parallelism never compares them: copies that have drifted apart stay so, and each rank trains another model.
Bad: a parameter made with another seed on each rank after the model was wrapped, or changed outside the optimizer.
Good: build before `DistributedDataParallel(model)`, which copies rank 0 to all; then change it by the optimizer alone.
Source: https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import NOWHERE, Cluster, Rank
from devwidget.extras.ranks.rules.compared_settings import compared_ranks, find_step_differences
from devwidget.extras.ranks.rules.over_ranks import (
    STAGES_ARE_FINE,
    are_copies,
    cluster_rule,
    format_paths,
    format_rank_ranges,
    group_ranks,
)
from devwidget.extras.ranks.rules.rank_claims import answered
from devwidget.extras.ranks.rules.ranks_disagree import differs_in_bytes
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message


@cluster_rule("drifted-copies")
def check(cluster: Cluster) -> Iterator[Finding]:
    """One finding for all of them; ranks are compared with those that can be, and have taken as many steps.

    Nothing is said of ranks whose tensors are of several dtypes or shapes, which is told: their copies differ by that.
    """
    for compared in compared_ranks(cluster):
        if differs_in_bytes(cluster, {rank.placement for rank in compared if rank.placement != NOWHERE}):
            continue
        for step, ranks in group_ranks((rank for rank in compared if rank.checksums), _step_of).items():
            copies: dict[str, dict[str, list[int]]] = {}
            for rank in ranks:
                for path, checksum in rank.checksums:
                    copies.setdefault(path, {}).setdefault(checksum, []).append(rank.number)
            drifted = {path: list(values.values()) for path, values in copies.items() if len(values) > 1}
            if drifted:
                yield _make_finding(cluster, drifted, step, _find_causes(cluster, drifted, ranks))


def _step_of(rank: Rank) -> int:
    """After which step its checksums were taken."""
    return rank.checksums_step if rank.checksums_step != NOWHERE else rank.step


def _find_causes(cluster: Cluster, drifted: dict[str, list[list[int]]], ranks: list[Rank]) -> Iterator[str]:
    """Since when they differ, and what else parts the same ranks: that copies cannot stay equal by it is known."""
    sums = [dict(rank.sums) for rank in ranks]
    steps = [step for step in sums[0] if all(step in each for each in sums)] if all(sums) else []
    apart = [step for step in steps if len({each[step] for each in sums}) > 1]
    equal = [step for step in steps if step < min(apart, default=0)]
    if apart and equal:
        yield Message("they were equal after step {step}, and not after step {next}", step=max(equal), next=min(apart))
    elif apart:
        yield Message("they differ after step {step}, the first that was compared", step=min(apart))
    parts = frozenset(tuple(sorted(each)) for each in next(iter(drifted.values())))
    for each in find_step_differences(cluster, ranks):
        if frozenset(tuple(sorted(part)) for part in each.parts) == parts and each.kind in ("optimizer", "mode"):
            name = f"`{each.name}`" if each.name else Message("the mode of the model")
            yield Message("the same ranks differ in {name}: {values}", name=name, values=each.word_values())
            return


def _make_finding(cluster: Cluster, drifted: dict[str, list[list[int]]], step: int, causes: Iterator[str]) -> Finding:
    copies = are_copies(cluster)
    paths = list(drifted)
    values = sorted(drifted[paths[0]], key=len)
    odd = sorted(number for ranks in values[:-1] for number in ranks)
    facts = {"paths": format_paths(paths), "ranks": format_rank_ranges(odd)}
    what = (
        Message("{paths} on {ranks} differs from the others", **facts)
        if len(paths) == 1
        else Message("{paths} on {ranks} differ from the others", **facts)
    )
    compared = {number for ranks in drifted[paths[0]] for number in ranks}
    unknown = (Message("how many steps each rank has taken is not known: after different numbers copies differ"),)
    return Finding(
        "drifted-copies", "error" if copies else "warning", paths[0].rpartition(".")[0],
        Message("{what} after step {step}", what=what, step=step) if step != NOWHERE else what,
        Message("copies stay equal if they begin equal, and each rank changes its own by equal gradients and settings"),
        fixes=(
            Fix(Message("begin with equal copies: wrap the model last"), "", "choice"),
            Fix(Message("change them alike: shared gradients, and one optimizer with one set of settings"), "", "choice"),
        ),
        notes=(*causes, *(() if step != NOWHERE else unknown), *(() if copies else (STAGES_ARE_FINE,))),
        claims=answered(sorted(compared)),
    )  # fmt: skip
