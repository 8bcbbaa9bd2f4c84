"""The collectives that one recording sees, as they are begun."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from types import FrameType
from typing import Any

from devwidget.capture import torch_internals
from devwidget.capture.recording.collectives.causes import cause_of
from devwidget.capture.recording.collectives.kinds import KINDS, given_bytes, group_in, places_of
from devwidget.capture.recording.event_log import Log
from devwidget.capture.recording.module_tracker import ModuleTracker
from devwidget.capture.source_code.call_sites import RawSite, to_site
from devwidget.records.parallel import POINT_TO_POINT, UNKNOWN, CollectiveCall, ProcessGroup, group_label
from devwidget.records.schema.message import Message

MOST_CALLS = 20_000
"""Collectives kept; a loop that begins more is read no better for the rest."""


class Collectives:
    """What this process has begun, in order, and for which groups."""

    def __init__(self, log: Log, tracker: ModuleTracker) -> None:
        self._log, self._tracker = log, tracker
        self._places: dict[int, tuple[Any, int]] = {}
        self._groups: list[ProcessGroup] = []
        self._begun: Counter[tuple[int, str, int]] = Counter()
        self._calls: list[tuple[CollectiveCall, RawSite | None]] = []

    def begin_collective(self, func: Any, name: str, args: tuple[Any, ...], frame: FrameType | None) -> None:
        """An operator of `KINDS` is about to run: one that never ends has begun too."""
        try:
            self._note_call(func, KINDS[name], args, frame)
        except Exception as error:
            self._log.log_trouble(error)

    def _note_call(self, func: Any, kind: str, args: tuple[Any, ...], frame: FrameType | None) -> None:
        if len(self._calls) >= MOST_CALLS:
            return self._log.add_note(_cut_list(MOST_CALLS))
        places, tracker = places_of(func), self._tracker
        group = self._group_place(group_in(args[places.group]))
        peer = self._groups[group].ranks[args[places.peer]] if places.peer >= 0 else UNKNOWN
        counted = group, kind if kind in POINT_TO_POINT else "", peer
        self._begun[counted] += 1
        by, owner, site = cause_of(frame)
        path = tracker.path_of(owner) if owner is not None else None
        call = CollectiveCall(
            kind, group, self._begun[counted], given_bytes(func, kind, args), self._log.number(),
            tracker.module if path is None else path, tracker.phase, None, by, peer,
        )  # fmt: skip
        self._calls.append((call, site))
        return None

    def _group_place(self, group: Any) -> int:
        """Of a process group among those met; it is kept, because an id is its own only while it lives."""
        if id(group) not in self._places:
            self._places[id(group)] = group, len(self._groups)
            self._groups.append(_record_of(group))
        return self._places[id(group)][1]

    def list_calls(self) -> tuple[CollectiveCall, ...]:
        """The records, each with its line."""
        lines = {site: to_site(site) for site in {site for _, site in self._calls}}
        return tuple(replace(call, site=lines[site]) for call, site in self._calls)

    def list_groups(self) -> tuple[ProcessGroup, ...]:
        """The process groups, in the order in which they were met."""
        return tuple(self._groups)


def _record_of(group: Any) -> ProcessGroup:
    name, ranks = str(group.group_name), torch_internals.ranks_of_group(group)
    return ProcessGroup(name, group_label(name, str(group.group_desc)), tuple(map(int, ranks)))


@functools.cache
def _cut_list(most: int) -> Message:
    reason = Message("only the first {count} collectives are in the trace", count=f"{most:,}")
    return Message("{kind}: {reason}", kind=Message("recorder"), reason=reason)
