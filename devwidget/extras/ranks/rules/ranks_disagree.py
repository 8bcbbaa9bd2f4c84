"""ranks-disagree: a dtype, flag, shape, placement, buffer or module that should be the same on all ranks differs.

Why: ranks with different models call different collectives, or reduce values that do not match.
Bad: `if rank == 0: model.head.requires_grad_(False)`.
Good: the same lines on every rank; only the device and the data depend on the rank.
Source: https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal, NamedTuple

from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.records.columns import Columns, lay_out_columns
from devwidget.extras.ranks.records.rank import OWN_DEVICE, LocalTensor, RankModule
from devwidget.extras.ranks.rules.over_ranks import (
    Peers,
    answered,
    cluster_rule,
    format_first,
    format_rank_ranges,
    format_values,
    notes_on_stages,
    peers_in,
    severity_among,
)
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message

What = Literal["registered", "role", "dtype", "requires_grad", "shape", "placement", "device"]


class TensorDifference(NamedTuple):
    """How tensors of one name differ, and each value with its columns."""

    what: What
    values: tuple[tuple[str, tuple[int, ...]], ...]


_FIX = Fix(Message("build and change the model with the same code on every rank"), "", "choice")
_WITHOUT = "without"


@cluster_rule("ranks-disagree")
def check(cluster: Cluster) -> Iterator[Finding]:
    """Yield one finding for each way in which comparable ranks differ, for any number of tensors."""
    columns = lay_out_columns(cluster)
    for peers in peers_in(cluster, columns):
        found: dict[TensorDifference, list[tuple[int, str]]] = {}
        for module in range(len(columns.modules)):
            for name, difference in _find_differences(columns, peers, module):
                found.setdefault(difference, []).append((module, name))
        for difference, places in found.items():
            yield _make_finding(cluster, columns, peers, difference, places)
        yield from _find_lacking(cluster, columns, peers)


def differs_in_bytes(columns: Columns, places: Collection[int]) -> bool:
    """Return whether a tensor exists on some ranks only, or differs in dtype or shape, so that collectives mix up bytes."""
    for module in range(len(columns.modules)):
        for _, each in _find_differences(columns, places, module):
            if each.what in ("registered", "dtype", "shape"):
                return True
    return False


def _find_differences(columns: Columns, places: Collection[int], module: int) -> Iterator[tuple[str, TensorDifference]]:
    """Yield the differences between the tensors of one module, over all columns that have it."""
    holdings = {at: holding for at in places if (holding := columns.each[at].held[module]) is not None}
    if len(set(holdings.values())) < 2:
        return
    by_name: dict[str, dict[int, LocalTensor]] = {}
    for at, holding in holdings.items():
        for tensor in holding:
            by_name.setdefault(tensor.name, {})[at] = tensor
    for name, tensors in by_name.items():
        lacking = holdings.keys() - tensors.keys()
        if lacking:
            yield name, TensorDifference("registered", ((_WITHOUT, tuple(sorted(lacking))), ("", tuple(tensors))))
            continue
        for what, describe in _SAME.items():
            values: dict[str, list[int]] = {}
            for at, tensor in tensors.items():
                values.setdefault(describe(tensor), []).append(at)
            if len(values) > 1:
                yield name, TensorDifference(what, tuple((value, tuple(same)) for value, same in values.items()))


_SAME: dict[What, Callable[[LocalTensor], str]] = {
    "role": lambda tensor: tensor.role,
    "dtype": lambda tensor: tensor.dtype,
    "requires_grad": lambda tensor: str(tensor.requires_grad),
    "shape": lambda tensor: str(list(tensor.shape or ())),
    "placement": lambda tensor: tensor.placement or Message("a plain tensor"),
    "device": lambda tensor: Message("its own device") if tensor.device == OWN_DEVICE else tensor.device,
}
"""What must be equal on all ranks in every parallel scheme; local shapes may differ."""


def _make_finding(
    cluster: Cluster, columns: Columns, peers: Peers, difference: TensorDifference, places: list[tuple[int, str]]
) -> Finding:
    module = columns.modules[places[0][0]]
    ranks: dict[str, list[int]] = {}
    for value, places_of in difference.values:
        ranks[value] = list(itertools.chain(*(peers[at] for at in places_of)))
    path, *others = (columns.tensor_path(*place) for place in places)
    if difference.what == "registered":
        told = Message("`{path}` is missing on {ranks}", path=path, ranks=format_rank_ranges(ranks[_WITHOUT]))
    else:
        # Those that differ from most are named first.
        fewest = sorted(ranks, key=lambda value: len(ranks[value]))
        values = format_values((value, ranks[value]) for value in fewest)
        told = Message("`{path}` differs in {what}: {values}", path=path, what=difference.what, values=values)
    notes = list(notes_on_stages(cluster))
    if others:
        notes.insert(0, Message("also {others}", others=format_first(others, 2)))
    return Finding(
        "ranks-disagree", severity_among(cluster), module.path, told, _WHY[difference.what],
        fault=module.defined,
        fixes=(_FIX,),
        notes=tuple(notes),
        roles=answered(itertools.chain(*ranks.values())),
    )  # fmt: skip


_WHY: dict[What, str] = {
    "registered": Message("each rank passes its tensors to collectives in the order of registration"),
    "role": Message("only parameters have gradients to average"),
    "dtype": Message("collectives require equal tensors; with other tensors they fail or return wrong values"),
    "requires_grad": Message("a rank without a gradient for it does not join the all-reduce of the others"),
    "shape": Message("collectives require equal tensors; with other tensors they fail or return wrong values"),
    "placement": Message("an op on it is a collective on some ranks but not on the others, which hangs"),
    "device": Message("a rank with part of its model elsewhere fails, or is slower and makes the others wait"),
}


def _find_lacking(cluster: Cluster, columns: Columns, peers: Peers) -> Iterator[Finding]:
    have = {at: columns.each[at].modules for at in peers}
    for at, own in have.items():
        larger = next((other for other, theirs in have.items() if own < theirs), None)
        if larger is not None:
            lost = [columns.modules[module] for module in sorted(have[larger] - own)]
            yield _tell_lacking(cluster, lost, peers[at], peers[larger])


def _tell_lacking(cluster: Cluster, lost: list[RankModule], ranks: Sequence[int], others: Sequence[int]) -> Finding:
    lack = Message.of(
        len(ranks), "{ranks} lacks module {modules}", "{ranks} lack module {modules}",
        ranks=format_rank_ranges(ranks), modules=format_first([module.path for module in lost], 1),
    )  # fmt: skip
    return Finding(
        "ranks-disagree", severity_among(cluster), lost[0].path,
        Message.of(len(others), "{lack}, which {others} has", "{lack}, which {others} have",
                   lack=lack, others=format_rank_ranges(others)),
        _WHY["registered"],
        fault=lost[0].defined,
        fixes=(_FIX,),
        notes=notes_on_stages(cluster),
        roles=answered((*ranks, *others)),
    )  # fmt: skip
