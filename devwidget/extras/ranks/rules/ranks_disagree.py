"""ranks-disagree: what should be the same on all ranks is not: a dtype, a flag, a shape, a placement, a buffer, a module.

Why: ranks with different models wait in different collectives, or add up numbers of different meaning.
Bad: `if rank == 0: model.head.requires_grad_(False)`.
Good: the same lines on every rank; only the device and the data depend on it.
Source: https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.records.rank import OWN_DEVICE, LocalTensor
from devwidget.extras.ranks.rules.over_ranks import (
    STAGES_ARE_FINE,
    Peers,
    are_copies,
    cluster_rule,
    format_rank_ranges,
    modules_of,
    peers_in,
    tensor_path,
)
from devwidget.extras.ranks.rules.rank_claims import answered
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message, in_row

Difference = tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]
"""Of what, and each value with the placements that have it."""

_FIX = Fix(Message("build and change the model by the same lines on every rank"), "", "choice")
_MOST_NAMED = 3


@cluster_rule("ranks-disagree")
def check(cluster: Cluster) -> Iterator[Finding]:
    """One finding for each way in which ranks that can be compared fall apart, whatever the number of its tensors."""
    for peers in peers_in(cluster):
        found: dict[Difference, list[tuple[int, str]]] = {}
        for module in range(len(cluster.modules)):
            for name, difference in _differences(cluster, peers, module):
                found.setdefault(difference, []).append((module, name))
        for (what, values), places in found.items():
            yield _make_finding(cluster, peers, what, values, places)
        yield from _modules(cluster, peers)


def differs_in_bytes(cluster: Cluster, placements: Collection[int]) -> bool:
    """Whether a tensor is there on some ranks alone, or is not of one dtype and shape: a collective then mixes up bytes."""
    found = (each for module in range(len(cluster.modules)) for _, each in _differences(cluster, placements, module))
    return any(what in ("registered", "dtype", "shape") for what, _ in found)


def _differences(cluster: Cluster, placements: Collection[int], module: int) -> Iterator[tuple[str, Difference]]:
    """Differences between the tensors of one module, over all placements that have it."""
    holdings = {at: each for at in placements if (each := cluster.holding(at, module)) is not None}
    if len(set(holdings.values())) < 2:
        return
    by_name: dict[str, dict[int, LocalTensor]] = {}
    for at, holding in holdings.items():
        for tensor in holding:
            by_name.setdefault(tensor.name, {})[at] = tensor
    for name, tensors in by_name.items():
        if len(tensors) < len(holdings):
            yield name, ("registered", _values({at: str(at in tensors) for at in holdings}))
            continue
        for what, describe in _SAME.items():
            values = {at: describe(tensor) for at, tensor in tensors.items()}
            if len(set(values.values())) > 1:
                yield name, (what, _values(values))


_SAME: dict[str, Callable[[LocalTensor], str]] = {
    "role": lambda tensor: tensor.role,
    "dtype": lambda tensor: tensor.dtype,
    "requires_grad": lambda tensor: str(tensor.requires_grad),
    "shape": lambda tensor: str(list(tensor.shape or ())),
    "placement": lambda tensor: tensor.placement or Message("a plain tensor"),
    "device": lambda tensor: Message("its own") if tensor.device == OWN_DEVICE else tensor.device,
}
"""What is equal on all ranks of every way to train; local shapes are not."""


def _values(values: dict[int, str]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    groups: dict[str, list[int]] = {}
    for at, value in values.items():
        groups.setdefault(value, []).append(at)
    return tuple((value, tuple(places)) for value, places in groups.items())


def _make_finding(
    cluster: Cluster, peers: Peers, what: str, values: tuple[tuple[str, tuple[int, ...]], ...], places: list[tuple[int, str]]
) -> Finding:
    ranks = {value: [rank for at in places_of for rank in peers[at]] for value, places_of in values}
    fewest = sorted(ranks, key=lambda value: len(ranks[value]))  # those that differ from most are named first
    module = places[0][0]
    paths = [tensor_path(cluster, *place) for place in places]
    told_values = in_row(Message("{kind} on {ranks}", kind=value, ranks=format_rank_ranges(ranks[value])) for value in fewest)
    more = [Message("{count} more", count=len(paths) - _MOST_NAMED)] if len(paths) > _MOST_NAMED else []
    others = in_row([*(f"`{path}`" for path in paths[1:_MOST_NAMED]), *more])
    copies = are_copies(cluster)
    same = (Message("the same of {others}", others=others),) if others else ()
    return Finding(
        "ranks-disagree", "error" if copies else "warning", cluster.modules[module].path,
        Message("`{path}` differs in {what}: {values}", path=paths[0], what=what, values=told_values)
        if what != "registered"
        else Message("`{path}` is missing on {ranks}", path=paths[0], ranks=format_rank_ranges(ranks[str(False)])),
        _WHY[what],
        fault=cluster.modules[module].defined,
        fixes=(_FIX,),
        notes=same if copies else (*same, STAGES_ARE_FINE),
        claims=answered(rank for each in ranks.values() for rank in each),
    )  # fmt: skip


_WHY = {
    "registered": Message("each rank gives its tensors to collectives in the order of registration"),
    "role": Message("only parameters have gradients to add up"),
    "dtype": Message("collectives add the bytes of equal tensors, and others fail or give nonsense"),
    "requires_grad": Message("a rank that collects no gradient for it does not take part when the others add theirs"),
    "shape": Message("collectives add the bytes of equal tensors, and others fail or give nonsense"),
    "placement": Message("an operation on it is a collective on some ranks and not on the others, which ends in a hang"),
    "device": Message("a rank with part of its model elsewhere fails or is slower, and all others wait for it"),
}


def _modules(cluster: Cluster, peers: Peers) -> Iterator[Finding]:
    """Ranks that lack modules and have none of their own in place of them."""
    have = {at: modules_of(cluster, at) for at in peers}
    for at, modules in have.items():
        larger = [other for other, theirs in have.items() if modules < theirs]
        if larger:
            lacking = sorted(have[larger[0]] - modules)
            path = cluster.modules[lacking[0]].path
            first = f"`{path}`"
            lost = Message("{first} and {count} more", first=first, count=len(lacking) - 1) if len(lacking) > 1 else first
            here, there = peers[at], peers[larger[0]]
            lack = (
                Message("{ranks} lacks module {modules}", ranks=format_rank_ranges(here), modules=lost)
                if len(here) == 1
                else Message("{ranks} lack module {modules}", ranks=format_rank_ranges(here), modules=lost)
            )
            copies = are_copies(cluster)
            yield Finding(
                "ranks-disagree", "error" if copies else "warning", path,
                Message("{lack}, which {others} has", lack=lack, others=format_rank_ranges(there))
                if len(there) == 1
                else Message("{lack}, which {others} have", lack=lack, others=format_rank_ranges(there)),
                _WHY["registered"],
                fault=cluster.modules[lacking[0]].defined,
                fixes=(_FIX,),
                notes=() if copies else (STAGES_ARE_FINE,),
                claims=answered((*here, *there)),
            )  # fmt: skip
