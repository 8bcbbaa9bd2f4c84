"""Moves grouped by the line that asked for them, the dearest first."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from devwidget.records.device import DeviceId
from devwidget.records.site import Phase, Site
from devwidget.records.trace import Cause, Move
from devwidget.views.sums import group_by, total, values_once

T = TypeVar("T")


def with_forward_lines(moves: Iterable[Move]) -> list[Move]:
    """The moves; one of backward that undoes a copy of the forward pass has the line and the module of that copy."""
    found = []
    for move, copy in with_forward_copies(moves):
        if copy is None:
            found.append(move)
        else:
            found.append(replace(move, site=copy.site, module=copy.module))
    return found


def with_forward_copies(moves: Iterable[Move]) -> list[tuple[Move, Move | None]]:
    """Return each move, and for one of backward the forward copy that it undoes, if that is known.

    Autograd runs last in, first out, and all its moves are on the line that called `backward`.
    """
    found, copies = [], dict[object, list[Move]]()
    for move in moves:
        copy = None
        if move.phase in ("forward", "loss"):
            copies.setdefault((move.source, move.target, move.shape, move.dtype), []).append(move)
        elif move.phase == "backward" and move.cause == "explicit":
            undone = copies.get((move.target, move.source, move.shape, move.dtype))
            if undone and undone[-1].count == move.count:  # else it is the gradients of several lines together
                copy = undone.pop()
        found.append((move, copy))
    return found


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
    """Return one Hop for each line, cause and direction, most bytes first."""
    groups = group_by(with_forward_lines(moves), _hop_key)
    return tuple(sorted(map(_merge_group, groups.values()), key=lambda hop: (-hop.bytes, hop.number)))


def _hop_key(move: Move) -> Hashable:
    return move.site and move.site.place, move.cause, move.phase, move.source, move.target


def join_by_line(found: Iterable[T], line_of: Callable[[T], Hashable]) -> tuple[tuple[T, ...], ...]:
    """Group records by line, for a table with one row for each line; in the order of the first of each."""

    def place_of(record: T) -> Hashable:
        line = line_of(record)
        return line.place if isinstance(line, Site) else line

    return tuple(map(tuple, group_by(found, place_of).values()))


def _merge_group(group: list[Move]) -> Hop:
    first, numbers = group[0], values_once(group, "number")
    return Hop(
        source=first.source,
        target=first.target,
        cause=first.cause,
        phase=first.phase,
        site=first.site,
        count=total(group, "count"),
        bytes=total(group, "all_bytes"),
        seconds=sum(move.seconds for move in group),
        modules=values_once(group, "module"),
        examples=tuple(dict.fromkeys((move.dtype, move.shape) for move in group)),
        number=min(numbers),
        numbers=numbers,
    )
