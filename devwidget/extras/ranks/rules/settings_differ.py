"""settings-differ: ranks that share a model train it with different settings or in different modes.

Why: each rank updates its copy or shard with its own learning rate, or without dropout.
Bad: `optimizer.param_groups[0]["lr"] *= 2` on the rank that evaluates; `model.eval()` there without `model.train()` after it.
Good: the same schedule on every rank; `model.train()` at the start of each epoch.
Source: https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from devwidget.extras.ranks.records.cluster import NOWHERE, Cluster
from devwidget.extras.ranks.records.rank import SettingKind
from devwidget.extras.ranks.rules.compared_settings import (
    SettingDifference,
    compared_ranks,
    find_place_differences,
    find_step_differences,
    group_alike,
)
from devwidget.extras.ranks.rules.over_ranks import STAGES_ARE_FINE, answered, are_copies, cluster_rule, format_first
from devwidget.records.finding import Finding, Fix, Severity
from devwidget.records.schema.message import Message

_MOST_NAMED = 3


class _Kind(NamedTuple):
    """How to report a difference of one kind."""

    severity: Severity
    why: str
    cure: str


_KINDS: dict[SettingKind, _Kind] = {
    "optimizer": _Kind(
        "error",
        Message("ranks that share a model must update it equally"),
        Message("set it with the same code and values on every rank"),
    ),
    "mode": _Kind(
        "error",
        Message("evaluation mode disables dropout and uses running statistics in norms, so gradients differ"),
        Message("call model.train() on every rank before the next step"),
    ),
    "precision": _Kind(
        "warning",
        Message("ranks that compute differently produce results that drift apart"),
        Message("set it with the same code on every rank"),
    ),
    "version": _Kind(
        "warning",
        Message("different versions may use different algorithms and protocols"),
        Message("install the same version on every machine"),
    ),
    "environment": _Kind(
        "info",
        Message("these variables change how a rank computes or communicates; some differ between machines on purpose"),
        Message("set it in the script that launches all ranks"),
    ),
}


@cluster_rule("settings-differ")
def check(cluster: Cluster) -> Iterator[Finding]:
    """Yield one finding for each kind of setting and each way in which it differs between comparable ranks."""
    for ranks in compared_ranks(cluster):
        for alike in group_alike((*find_step_differences(ranks), *find_place_differences(ranks))):
            yield _make_finding(cluster, alike)


def _make_finding(cluster: Cluster, alike: list[SettingDifference]) -> Finding:
    first, *others = alike
    kind = _KINDS[first.kind]
    may_be_stages = first.kind in ("optimizer", "mode") and not are_copies(cluster)
    notes = []
    if first.step != NOWHERE:
        notes.append(Message("seen at the end of step {step}", step=first.step))
    if others:
        names = format_first([each.name for each in others], _MOST_NAMED)
        notes.append(Message("the same ranks differ in {names}", names=names))
    if may_be_stages:
        notes.append(STAGES_ARE_FINE)
    return Finding(
        "settings-differ", "warning" if may_be_stages else kind.severity, first.name if first.kind == "mode" else None,
        _word_difference(first), kind.why,
        fixes=(Fix(kind.cure, "", "choice"),),
        notes=tuple(notes),
        roles=answered(sorted(rank for _, ranks in first.values for rank in ranks)),
    )  # fmt: skip


def _word_difference(difference: SettingDifference) -> str:
    facts = {"name": difference.name, "values": difference.word_values()}
    if difference.kind != "mode":
        return Message("`{name}` differs: {values}", **facts)
    if difference.name:
        return Message("`{name}` is in different modes: {values}", **facts)
    return Message("the model is in different modes: {values}", values=facts["values"])
