"""settings-differ: ranks that share a model train it by different settings, or in different modes.

Why: each changes its copy or its share by its own learning rate, or without dropout: the model that comes out is no one's.
Bad: `optimizer.param_groups[0]["lr"] *= 2` on the rank that evaluates; `model.eval()` there, and no `model.train()` after it.
Good: the same schedule on every rank, from numbers that all of them have; `model.train()` at the beginning of each epoch.
Source: https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from devwidget.extras.ranks.records.cluster import NOWHERE, Cluster
from devwidget.extras.ranks.records.rank import SettingKind
from devwidget.extras.ranks.rules.compared_settings import (
    Difference,
    compared_ranks,
    find_place_differences,
    find_step_differences,
    group_alike,
)
from devwidget.extras.ranks.rules.over_ranks import STAGES_ARE_FINE, are_copies, cluster_rule
from devwidget.extras.ranks.rules.rank_claims import answered
from devwidget.records.finding import Finding, Fix, Severity
from devwidget.records.schema.message import Message, in_row

_MOST_NAMED = 3


class _Kind(NamedTuple):
    """How a difference of one kind is told."""

    severity: Severity
    why: str
    cure: str


_KINDS: dict[SettingKind, _Kind] = {
    "optimizer": _Kind(
        "error",
        Message("ranks that share a model have to change it alike"),
        Message("set it by the same lines and numbers on every rank"),
    ),
    "mode": _Kind(
        "error",
        Message("in evaluation there is no dropout, and norms use what they have gathered: gradients are of another model"),
        Message("call model.train() on every rank before the next step"),
    ),
    "precision": _Kind(
        "warning",
        Message("ranks that compute in different ways give results that drift apart"),
        Message("set it by the same lines on every rank"),
    ),
    "version": _Kind(
        "warning",
        Message("other versions may choose other algorithms, and speak other protocols"),
        Message("install the same on every machine"),
    ),
    "environment": _Kind(
        "info",
        Message("such variables change how a rank computes or communicates; some differ between machines on purpose"),
        Message("set it in the script that starts all ranks"),
    ),
}


@cluster_rule("settings-differ")
def check(cluster: Cluster) -> Iterator[Finding]:
    """One finding for each way in which settings of one kind part ranks that can be compared."""
    for ranks in compared_ranks(cluster):
        for alike in group_alike((*find_step_differences(cluster, ranks), *find_place_differences(cluster, ranks))):
            yield _make_finding(cluster, alike)


def _make_finding(cluster: Cluster, alike: list[Difference]) -> Finding:
    first = alike[0]
    kind = _KINDS[first.kind]
    copies = are_copies(cluster) or first.kind not in ("optimizer", "mode")
    facts = {"name": first.name, "values": first.word_values()}
    if first.kind == "mode":
        of_model = Message("the model is in different modes: {values}", values=first.word_values())
        told = Message("`{name}` is in different modes: {values}", **facts) if first.name else of_model
    else:
        told = Message("`{name}` differs: {values}", **facts)
    others = in_row(f"`{each.name}`" for each in alike[1 : _MOST_NAMED + 1])
    more = len(alike) - 1 - _MOST_NAMED
    also = Message("{names} and {count} more", names=others, count=more) if more > 0 else others
    notes = (
        *((Message("so it was at the end of step {step}", step=first.step),) if first.step != NOWHERE else ()),
        *((Message("the same ranks differ in {names}", names=also),) if others else ()),
        *(() if copies else (STAGES_ARE_FINE,)),
    )
    return Finding(
        "settings-differ", kind.severity if copies else "warning", first.name if first.kind == "mode" else None,
        told, kind.why,
        fixes=(Fix(kind.cure, "", "choice"),),
        notes=notes,
        claims=answered(sorted(rank for _, ranks in first.values for rank in ranks)),
    )  # fmt: skip
