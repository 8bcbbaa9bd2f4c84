"""Moves and waits grouped by the line that asked for them, the dearest first."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from devwidget.records.device import DeviceId
from devwidget.records.site import Phase, Site
from devwidget.records.trace import Cause, Move, Wait
from devwidget.views.sums import total, values_once

T = TypeVar("T")


def with_forward_lines(moves: Iterable[Move]) -> list[Move]:
    """The moves; one of backward that undoes a copy of the forward pass bears the line and the module of that copy."""
    pairs = with_forward_copies(moves)
    return [replace(move, site=copy.site, module=copy.module) if copy else move for move, copy in pairs]


def with_forward_copies(moves: Iterable[Move]) -> list[tuple[Move, Move | None]]:
    """Each move, and the copy of the forward pass that it undoes, if it is one of backward and that is known.

    Autograd runs last in, first out, on whatever line called `backward`, which is the same for all of them.
    """
    found, copies = [], dict[object, list[Move]]()
    for move in moves:
        alike, copy = (move.shape, move.dtype), None
        if move.phase in ("forward", "loss"):
            copies.setdefault((move.source, move.target, *alike), []).append(move)
        elif move.phase == "backward" and move.cause == "explicit":
            undone = copies.get((move.target, move.source, *alike))
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
    """One Hop for each line, cause and direction, most bytes first."""
    groups: dict[object, list[Move]] = {}
    for move in with_forward_lines(moves):
        line = move.site.place if move.site else None
        groups.setdefault((line, move.cause, move.phase, move.source, move.target), []).append(move)
    hops = [_merge_group(group) for group in groups.values()]
    return tuple(sorted(hops, key=lambda hop: (-hop.bytes, hop.number)))


def join_by_line(found: Iterable[T], line_of: Callable[[T], Hashable]) -> tuple[tuple[T, ...], ...]:
    """What belongs to one line together, for a table that has one row for it; in the order of the first of each."""
    groups: dict[Hashable, list[T]] = {}
    for each in found:
        line = line_of(each)
        groups.setdefault(line.place if isinstance(line, Site) else line, []).append(each)
    return tuple(map(tuple, groups.values()))


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


@dataclass(frozen=True, slots=True)
class WaitingLine:
    """All waits of one line for one device.

    Attributes:
        device, site, called: what they have in common.
        calls: what waits, each once: `item`, `__getitem__`.
        phases: parts of the step, each once.
        modules: paths of the modules that were running, each once; None was outside the model.
        count: how often.
        meant: why the author allows it; "" if nobody said so.
    """

    device: DeviceId
    site: Site | None
    called: Site | None
    calls: tuple[str, ...]
    phases: tuple[Phase, ...]
    modules: tuple[str | None, ...]
    count: int
    meant: str


def group_waits(waits: Iterable[Wait]) -> tuple[WaitingLine, ...]:
    """One for each line and device, most waits first."""
    groups: dict[object, list[Wait]] = {}
    for wait in waits:
        if wait.site:
            line = (wait.site.file, wait.site.line)
        else:
            line = None
        groups.setdefault((line, wait.device, wait.called, wait.meant), []).append(wait)
    return tuple(sorted(map(_merge_waits, groups.values()), key=lambda line: -line.count))


def _merge_waits(group: list[Wait]) -> WaitingLine:
    first = group[0]
    return WaitingLine(
        device=first.device,
        site=first.site,
        called=first.called,
        calls=tuple(dict.fromkeys(wait.call.strip("_") for wait in group)),
        phases=values_once(group, "phase"),
        modules=values_once(group, "module"),
        count=total(group, "count"),
        meant=first.meant,
    )
