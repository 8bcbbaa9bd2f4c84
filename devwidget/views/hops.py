"""Moves grouped by the line that asked for them, the dearest first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from devwidget.records.device import DeviceId
from devwidget.records.site import Site
from devwidget.records.trace import Cause, Move, Phase
from devwidget.views.backward_hops import with_forward_lines


@dataclass(frozen=True, slots=True)
class Hop:
    """All crossings of one line between the same two devices for the same cause.

    Attributes:
        source, target, cause, phase, site: what they have in common.
        count: crossings.
        bytes: bytes of all of them.
        seconds: time of the calls in the host.
        modules: paths of the modules that were running, each once; None was outside the model.
        examples: `(dtype, shape)` of the tensors, each once.
        number: place of the first one in the trace.
        numbers: places of all of them.
    """

    source: DeviceId
    target: DeviceId
    cause: Cause
    phase: Phase
    site: Site | None
    count: int
    bytes: int
    seconds: float
    modules: tuple[str | None, ...]
    examples: tuple[tuple[str, tuple[int, ...]], ...]
    number: int
    numbers: tuple[int, ...] = ()


def group_hops(moves: Iterable[Move]) -> tuple[Hop, ...]:
    """One Hop for each line, cause and direction, most bytes first."""
    groups: dict[object, list[Move]] = {}
    for move in with_forward_lines(moves):
        line = move.site.place if move.site else None
        groups.setdefault((line, move.cause, move.phase, move.source, move.target), []).append(move)
    hops = [_fold(group) for group in groups.values()]
    return tuple(sorted(hops, key=lambda hop: (-hop.bytes, hop.number)))


def fold_phases(hops: Iterable[Hop]) -> tuple[Hop, ...]:
    """One Hop for each line, cause and direction in all phases: for a table that does not tell them apart.

    `phase` and `site` are those of the first crossing.
    """
    groups: dict[object, list[Hop]] = {}
    for hop in hops:
        line = hop.site.place if hop.site else None
        groups.setdefault((line, hop.cause, hop.source, hop.target), []).append(hop)
    folded = [_joined(sorted(group, key=lambda hop: hop.number)) for group in groups.values()]
    return tuple(sorted(folded, key=lambda hop: (-hop.bytes, hop.number)))


def _joined(group: list[Hop]) -> Hop:
    return dataclasses.replace(
        group[0],
        count=sum(hop.count for hop in group),
        bytes=sum(hop.bytes for hop in group),
        seconds=sum(hop.seconds for hop in group),
        modules=tuple(dict.fromkeys(module for hop in group for module in hop.modules)),
        examples=tuple(dict.fromkeys(example for hop in group for example in hop.examples)),
        numbers=tuple(sorted(number for hop in group for number in hop.numbers)),
    )


def _fold(group: list[Move]) -> Hop:
    first = group[0]
    return Hop(
        source=first.source,
        target=first.target,
        cause=first.cause,
        phase=first.phase,
        site=first.site,
        count=sum(move.count for move in group),
        bytes=sum(move.bytes * move.count for move in group),
        seconds=sum(move.seconds for move in group),
        modules=tuple(dict.fromkeys(move.module for move in group)),
        examples=tuple(dict.fromkeys((move.dtype, move.shape) for move in group)),
        number=min(move.number for move in group),
        numbers=tuple(move.number for move in group),
    )
