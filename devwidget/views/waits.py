"""Waits grouped by line, those that waited most often first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from devwidget.records.device import DeviceId
from devwidget.records.phase import Phase
from devwidget.records.site import Site
from devwidget.records.trace import Wait


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
        line = (wait.site.file, wait.site.line) if wait.site else None
        groups.setdefault((line, wait.device, wait.called, wait.meant), []).append(wait)
    return tuple(sorted(map(_fold, groups.values()), key=lambda line: -line.count))


def _fold(group: list[Wait]) -> WaitingLine:
    first = group[0]
    return WaitingLine(
        device=first.device,
        site=first.site,
        called=first.called,
        calls=tuple(dict.fromkeys(wait.call.strip("_") for wait in group)),
        phases=tuple(dict.fromkeys(wait.phase for wait in group)),
        modules=tuple(dict.fromkeys(wait.module for wait in group)),
        count=sum(wait.count for wait in group),
        meant=first.meant,
    )
