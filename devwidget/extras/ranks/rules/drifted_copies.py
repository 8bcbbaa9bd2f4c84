"""drifted-copies: parameters that are replicated on every rank are no longer equal.

Why: data parallelism never compares them, so each rank trains a different model.
Bad: a parameter created with a different seed per rank after the model was wrapped.
Good: build before `DistributedDataParallel(model)`, which copies rank 0 to all; then change parameters only by the optimizer.
Source: https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import NOWHERE, Cluster, Rank, group_by
from devwidget.extras.ranks.records.columns import lay_out_columns
from devwidget.extras.ranks.rules.over_ranks import (
    answered,
    cluster_rule,
    format_first,
    format_rank_ranges,
    format_values,
    notes_on_stages,
    severity_among,
)
from devwidget.extras.ranks.rules.ranks_disagree import differs_in_bytes
from devwidget.extras.ranks.rules.settings_differ import compared_ranks, find_step_differences
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message

Drifted = dict[str, list[tuple[int, ...]]]
"""For each path of a parameter the ranks with each value, rarest first."""


@cluster_rule("drifted-copies")
def check(cluster: Cluster) -> Iterator[Finding]:
    """Yield one finding for all drifted parameters of comparable ranks with the same number of steps.

    Ranks whose tensors differ in dtype or shape have another finding and are skipped here.
    """
    columns = lay_out_columns(cluster)
    places = columns.place_ranks()
    for compared in compared_ranks(cluster):
        if differs_in_bytes(columns, {places[rank.number] for rank in compared if rank.number in places}):
            continue
        summed = (rank for rank in compared if rank.said.checksums)
        for step, ranks in group_by(summed, _step_of).items():
            drifted = _find_drifted(ranks)
            if drifted:
                yield _make_finding(cluster, drifted, step, list(_tell_cause(drifted, ranks)))


def _step_of(rank: Rank) -> int:
    if rank.said.checksums_step != NOWHERE:
        return rank.said.checksums_step
    return rank.step


def _find_drifted(ranks: list[Rank]) -> Drifted:
    copies: dict[str, dict[str, list[int]]] = {}
    for rank in ranks:
        for path, checksum in rank.said.checksums:
            copies.setdefault(path, {}).setdefault(checksum, []).append(rank.number)
    return {path: sorted(map(tuple, values.values()), key=len) for path, values in copies.items() if len(values) > 1}


def _tell_cause(drifted: Drifted, ranks: list[Rank]) -> Iterator[str]:
    """Yield the first setting that differs between the same ranks and explains the drift."""
    parts = frozenset(next(iter(drifted.values())))
    for each in find_step_differences(ranks):
        if each.kind in ("optimizer", "mode") and each.parts == parts:
            name = each.name and f"`{each.name}`"
            values = format_values(each.values)
            yield Message(
                "the same ranks differ in {name}: {values}", name=name or Message("the mode of the model"), values=values
            )
            return


def _make_finding(cluster: Cluster, drifted: Drifted, step: int, notes: list[str]) -> Finding:
    paths = list(drifted)
    *rare, most = drifted[paths[0]]
    odd = sorted(itertools.chain(*rare))
    told = Message.of(
        len(paths), "{paths} on {ranks} differs from the others", "{paths} on {ranks} differ from the others",
        paths=format_first(paths), ranks=format_rank_ranges(odd),
    )  # fmt: skip
    if len(most) == len(rare[-1]):  # nobody can tell which of them are wrong
        ranks = format_rank_ranges(sorted([*odd, *most]))
        told = Message.of(
            len(paths), "{paths} is not the same on {ranks}", "{paths} are not the same on {ranks}",
            paths=format_first(paths), ranks=ranks,
        )  # fmt: skip
    if step == NOWHERE:
        notes.append(Message("the number of steps per rank is unknown; copies also differ after a different number of steps"))
    else:
        told = Message("{what} after step {step}", what=told, step=step)
    return Finding(
        "drifted-copies", severity_among(cluster), paths[0].rpartition(".")[0], told,
        Message("copies stay equal only if they start equal and every rank applies the same gradients with the same "
"settings"),
        fixes=(
            Fix(Message("start with equal copies: wrap the model last"), "", "choice"),
            Fix(
                Message("update them equally: averaged gradients, and the same optimizer settings on every rank"), "", "choice"
            ),
        ),
        notes=(*notes, *notes_on_stages(cluster)),
        roles=answered(sorted(itertools.chain(*drifted[paths[0]]))),
    )  # fmt: skip
