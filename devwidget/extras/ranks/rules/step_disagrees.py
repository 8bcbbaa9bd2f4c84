"""step-disagrees: some ranks have taken more steps than others.

Why: after a skipped step each rank trains a different model, and at the end they wait for each other.
Bad: `if loss.isnan(): continue` on the rank whose batch was bad.
Good: decide together: `dist.all_reduce(bad)`, then all ranks skip the step or none does.
Source: https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from __future__ import annotations

import operator
from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import Cluster, Rank, group_by
from devwidget.extras.ranks.records.rank import GroupProgress
from devwidget.extras.ranks.rules.over_ranks import answered_by, cluster_rule, name_ranks
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message, in_row


@cluster_rule("step-disagrees")
def check(cluster: Cluster) -> Iterator[Finding]:
    """Yield one finding for each set of ranks with the same collectives and different numbers of steps."""
    counted = [rank for rank in cluster.ranks if rank.step >= 0]
    in_groups = [rank for rank in counted if rank.said.groups]
    for (name, *_), ranks in group_by(in_groups, _name_group).items():
        if _steps_differ(ranks):
            yield _make_finding(name, ranks)


def _make_finding(group: str, ranks: list[Rank]) -> Finding:
    by_step = sorted(group_by(ranks, lambda rank: rank.step).items(), key=lambda each: len(each[1]))
    steps = in_row(Message("{ranks} {step}", ranks=name_ranks(same), step=step) for step, same in by_step[:4])
    return Finding(
        "step-disagrees", "error", None,
        Message("the ranks have taken different numbers of steps: {steps}", steps=steps),
        Message("the ranks with more steps have not begun more collectives of `{group}`, so they were not merely "
"queried later",
                group=group),
        fixes=(Fix(Message("skip a step on all ranks together"), "dist.all_reduce(bad, op=dist.ReduceOp.MAX)", "choice"),),
        roles=answered_by(ranks),
    )  # fmt: skip


def _largest_group(rank: Rank) -> GroupProgress:
    return max(rank.said.groups, key=lambda group: (group.size, group.begun))


def _name_group(rank: Rank) -> tuple[str, int, int]:
    """Return what distinguishes its largest group from others of that name."""
    group = _largest_group(rank)
    return group.name, group.first, group.size


def _begun(rank: Rank) -> tuple[int, int]:
    """Return the number of collectives in the largest group and in all groups: on a mesh a step may lack the former."""
    return _largest_group(rank).begun, sum(group.begun for group in rank.said.groups)


def _steps_differ(ranks: list[Rank]) -> bool:
    """Return whether the steps certainly differ.

    Ranks are queried one after the other, so a later one may have progressed. But a rank that has ended one step more than
    another has called at least one collective more, and one that is two ahead has certainly ended one.
    """
    places = {rank.said.waits and rank.said.waits.place for rank in ranks}
    if len(places) == 1 and None not in places:  # no rank moves, and all are at one place
        return len({rank.step for rank in ranks}) > 1
    in_step = [rank for rank in ranks if _begun(rank)[0] >= rank.step]  # some ways to train do not meet at each step
    for same in group_by(ranks, _begun).values():  # few places, at which there are many ranks
        ahead = max(same, key=lambda rank: rank.step)
        for rank in in_step:
            if ahead.step >= rank.step + 2 and all(map(operator.le, _begun(ahead), _begun(rank))):
                return True
    return False
