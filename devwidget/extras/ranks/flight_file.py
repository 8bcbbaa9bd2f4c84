"""Read dumps of torch's flight recorder, one for each rank, as one cluster: which collective each rank called last.

Source of the format: `torch/distributed/flight_recorder/components/builder.py`, version 2 of the dumps.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from devwidget.extras.ranks.records.checks import MOST_RANKS
from devwidget.extras.ranks.records.cluster import Cluster, Rank
from devwidget.extras.ranks.records.merging import merge
from devwidget.extras.ranks.records.rank import Collective, RankReport
from devwidget.records.errors import UnreadableError
from devwidget.records.loading.json_io import reread
from devwidget.records.loading.other_files import load_content
from devwidget.records.loading.stacks import users_sites
from devwidget.records.loading.typed_reader import Unexpected, make_reader
from devwidget.records.loading.untrusted_files import ReadingPlace, refuse_damaged
from devwidget.records.schema.fields import Size
from devwidget.records.schema.message import Message
from devwidget.records.site import Site

_MOST_MEMBERS, _MOST_DIMS, _MOST_BYTES = 1 << 20, 64, 1 << 63


@dataclass(frozen=True, slots=True)
class _State:
    state: str
    is_p2p: bool = False
    retired: bool = False
    time_discovered_completed_ns: int | None = None

    @property
    def is_over(self) -> bool:
        return self.state == "completed" or self.retired or bool(self.time_discovered_completed_ns)


@dataclass(frozen=True, slots=True)
class _Frame:
    filename: str
    line: int
    name: str


@dataclass(frozen=True, slots=True)
class _Entry:
    profiling_name: str
    process_group: tuple[str, ...]
    collective_seq_id: Size = 0
    input_sizes: tuple[tuple[Size, ...], ...] = ()
    input_dtypes: tuple[str, ...] = ()
    frames: tuple[_Frame, ...] = ()


def is_dump(content: Any) -> bool:
    """Return whether a file is a dump of the flight recorder."""
    return isinstance(content, dict) and isinstance(content.get("entries"), list) and "pg_config" in content


def read_content(name: str, content: Any, size: int) -> Cluster | None:
    """Read one dump; None for a file of another tool."""
    if is_dump(content):
        return read_dumps({name: content})
    return None


def read_folder(folder: pathlib.Path) -> Cluster | None:
    """Read the dumps in a folder as one cluster; None without any."""
    contents = {file.name: content for file in sorted(folder.iterdir()) if is_dump(content := load_content(file))}
    return read_dumps(contents) if contents else None


def read_dumps(contents: Mapping[str, Any]) -> Cluster:
    """Read dumps whose file names end in the rank; raise ValueError if a file is not a dump."""
    with refuse_damaged(lambda error: Message("not a dump of torch's flight recorder: {error}", error=error)) as place:
        heard = []
        for number, (name, content) in enumerate(contents.items()):
            digits = re.search(r"(\d{1,7})(\.\w+)?$", name)
            report = _read_report(int(digits[1]) if digits else number, content, place)
            if report.waits is None:
                heard.append(Rank("answered", report))
            else:
                heard.append(Rank("hung", report, Message("its flight recorder has an unfinished collective")))
        place.move_to("")
        return reread(merge(heard))


def _read_report(rank: int, content: Mapping[str, Any], place: ReadingPlace) -> RankReport:
    groups = _read_groups(content["pg_config"], place)
    states = [make_reader(_State)(entry) for entry in place.iterate_list("entries", content["entries"])]
    last = None
    for at, state in enumerate(states):
        if not state.is_p2p:
            last = at
            if not state.is_over:  # the first holds up all after it
                break
    size = max([rank, *itertools.chain(*groups.values())]) + 1
    if size > MOST_RANKS:
        raise UnreadableError(Message("not a dump of torch's flight recorder: a job of {size} ranks", size=size))
    if last is None:
        return RankReport(rank, size, "", 0)
    place.move_to(f"entries[{last}]")
    entry = make_reader(_Entry)(content["entries"][last])
    stack = tuple(users_sites(list(map(dataclasses.asdict, entry.frames))))
    collective = _read_collective(entry, states[last].is_over, groups, next(iter(stack), None))
    return RankReport(rank, size, "", 0, collective=collective, stack=stack[::-1])


def _read_groups(config: Mapping[str, Any], place: ReadingPlace) -> dict[str, tuple[int, ...]]:
    """Return the name and ranks of each process group; older dumps sort the ranks."""
    inner = [group for value in config.values() if "ranks" not in value for group in value.items()]
    groups: dict[str, tuple[int, ...]] = {}
    left = _MOST_MEMBERS
    for name, group in place.iterate_list("pg_config", inner or config.items()):
        ranks = group["ranks"]
        if isinstance(ranks, str):
            ranks = json.loads(ranks)
        left -= len(ranks)
        if left < 0:
            raise Unexpected(Message("at most {count} ranks in all groups together", count=_MOST_MEMBERS))
        groups[make_reader(str)(name)] = make_reader(tuple[Size, ...])(ranks)
    return groups


def _read_collective(entry: _Entry, is_over: bool, groups: Mapping[str, tuple[int, ...]], site: Site | None) -> Collective:
    name, description = (*entry.process_group, "", "")[:2]
    if max(map(len, entry.input_sizes), default=0) > _MOST_DIMS:
        raise Unexpected(Message("at most 64 dimensions"), path="input_sizes")
    given = count_bytes(entry.input_sizes, entry.input_dtypes)
    if given >= _MOST_BYTES:
        raise Unexpected(Message("fewer than 2**63 elements"), path="input_sizes")
    members = groups.get(name) or groups.get("") or ()
    kind = find_kind(entry.profiling_name)
    return Collective(kind, entry.collective_seq_id, description or name, members, given, is_over, site=site)


# By the words of the recorder; what else there is takes one byte.
_ITEM_BYTES = {"ComplexDouble": 16, "Double": 8, "Long": 8, "ComplexFloat": 8, "Float": 4, "Int": 4}
_ITEM_BYTES |= {"Half": 2, "BFloat16": 2, "Short": 2}


def find_kind(profiling_name: str) -> str:
    """Return `all_reduce` for `nccl:all_reduce`."""
    return profiling_name.rpartition(":")[2]


def count_bytes(shapes: Iterable[Sequence[int]], dtypes: Iterable[str]) -> int:
    """Return the bytes of the tensors that a rank passes."""
    return sum(math.prod(shape) * _ITEM_BYTES.get(dtype, 1) for shape, dtype in zip(shapes, dtypes, strict=False))
