"""The progress of a process in its collectives, from torch's flight recorder."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from devwidget.capture import torch_internals
from devwidget.extras.ranks.flight_file import count_bytes, find_kind
from devwidget.extras.ranks.records.rank import Collective, GroupProgress, PastCollective
from devwidget.records.parallel import group_label

# Seconds after which a running rank has made progress.
_A_MOMENT = 0.005


class Group(NamedTuple):
    """A process group in its process."""

    name: str
    ranks: tuple[int, ...]


Progress = tuple[Collective | None, tuple[GroupProgress, ...]]
Groups = Mapping[str, Group]
"""Groups by torch's number in the whole job."""


class ProgressReader:
    """Read the recorder of this process; its entries only while a collective is pending: torch takes 20 us per entry.

    Finished entries of NCCL are left out; gloo never marks its own as finished, at most 2,000.
    """

    def __init__(self) -> None:
        self._last: tuple[tuple[GroupProgress, ...], Mapping[str, Any]] | None = None

    def read_progress(self) -> Progress:
        """Return the pending collective, and the progress of each group; nothing without a recorder."""
        groups = list_groups()
        progress = merge_counts(_read_counts(), groups)
        if all(each.begun <= each.finished for each in progress):
            return None, progress
        time.sleep(_A_MOMENT)
        before, progress = progress, merge_counts(_read_counts(), groups)
        # A collective that progressed within a moment is running, not pending.
        if before != progress:
            return None, progress
        if self._last is None or self._last[0] != progress:
            entry = find_open_entry(_read_entries(only_open=True))
            if entry is None:  # it has ended in between
                return None, progress
            self._last = progress, entry
        return describe_collective(self._last[1], groups), progress


MOST_LAST = 32
"""Collectives that a rank reports."""


class LastReader:
    """Read the most recent collectives of this process, at most 1 % of the time.

    Torch returns all its entries or none, up to 2,000, and holds the GIL for 20 us per entry.
    """

    def __init__(self) -> None:
        self._found: tuple[PastCollective, ...] = ()
        self._next = 0.0

    def read_last(self, *, at_the_end: bool = False) -> tuple[PastCollective, ...]:
        """Return the most recent collectives, newest last, without messages between two ranks."""
        began = time.monotonic()
        if at_the_end or began >= self._next:
            self._found = _read_past()
            self._next = began + 100 * (time.monotonic() - began)
        return self._found


def _read_past() -> tuple[PastCollective, ...]:
    groups, found = list_groups(), []
    for entry in _read_entries(only_open=False):
        if not entry.get("is_p2p"):
            each, begun = describe_collective(entry, groups), entry.get("time_created_ns", 0) / 1e9
            size = _first_and_size(each.ranks)
            found.append(PastCollective(each.kind, each.sequence, each.group, *size, each.bytes, begun))
    found.sort(key=lambda each: each.begun)
    return tuple(found[-MOST_LAST:])


def _first_and_size(ranks: Sequence[int]) -> tuple[int, int]:
    if ranks:
        return ranks[0], len(ranks)
    return -1, 0


def _read_counts() -> list[Mapping[str, Any]]:
    """Return the counts of each recorder of torch: one for NCCL, if torch has it, one for all others."""
    dumps = [torch_internals.collective_counts, torch_internals.nccl_counts]
    # Without entries, which cost 20 us each.
    return [json.loads(dump(False)) for dump in dumps if dump is not None]


def _read_entries(*, only_open: bool) -> list[Mapping[str, Any]]:
    """Return the entries of each recorder without stacks; with `only_open` without finished ones."""
    found: list[Mapping[str, Any]] = []
    for dump in (torch_internals.collective_entries, torch_internals.nccl_entries):
        if dump is not None:
            found += pickle.loads(dump(True, False, only_open)).get("entries", ())
    return found


def parse_progress(dumped: bytes) -> Progress:
    """Parse the progress from the text of torch's own handler, which answers while Python is busy."""
    told = json.loads(dumped)
    entries = told.get("entries", ())
    names = {str(each.get("pg_id")): group_label(*each["process_group"]) for each in entries}
    progress = tuple(replace(each, name=names.get(each.name, "")) for each in merge_counts([told], {}))
    entry = find_open_entry(entries)
    if entry is None:
        return None, progress
    return describe_collective(entry, {}), progress


def list_groups() -> Groups:
    """Return the process groups of this process in order of creation."""
    world: Any = torch_internals.process_groups
    if world is None:
        return {}
    members = dict(world.pg_group_ranks)
    found: dict[str, Group] = {}
    for group, number in list(world.pg_names.items()):
        # Ints are the keys of groups that this process is no member of.
        if type(group) is not int:
            found[str(number)] = Group(group_label(str(number), group.group_desc), tuple(sorted(members.get(group, ()))))
    return found


def merge_counts(told: Iterable[Mapping[str, Any]], groups: Groups) -> tuple[GroupProgress, ...]:
    """Return the progress of each group, from the recorder that has seen most of it.

    Counts use the index of a group in its process; entries use its number in the job.
    """
    by_place = {str(place): group for place, group in enumerate(groups.values())}
    found: dict[str, GroupProgress] = {}
    for each in told:
        for place, status in each.get("pg_status", {}).items():
            # -1 where there was none.
            begun = max(0, int(status["last_enqueued_collective"]))
            finished = max(0, int(status["last_completed_collective"]))
            name, ranks = by_place.get(place) or (place, ())
            if place not in found or found[place].begun < begun:
                found[place] = GroupProgress(name, begun, finished, *_first_and_size(ranks))
    return tuple(found.values())


def find_open_entry(entries: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the first unfinished collective, which blocks all others. Gloo reports only timeouts."""
    for entry in entries:
        if not entry.get("retired") and entry.get("state") != "completed":
            return entry
    return None


def describe_collective(entry: Mapping[str, Any], groups: Groups) -> Collective:
    """Return the record of one entry, with its current age."""
    number, name = entry.get("process_group", ("", ""))
    return Collective(
        kind=find_kind(str(entry.get("profiling_name", ""))),
        sequence=int(entry.get("p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id", 0)),
        group=group_label(number, name),
        ranks=groups[number].ranks if number in groups else (),
        bytes=count_bytes(entry.get("input_sizes", ()), entry.get("input_dtypes", ())),
        finished=False,
        seconds=max(0.0, time.time() - entry.get("time_created_ns", 0) / 1e9),
    )
