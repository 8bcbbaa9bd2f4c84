"""Dumps of torch's flight recorder, one for each rank of a job, as one cluster: which collective each rank began last.

Source of the format: `torch/distributed/flight_recorder/components/builder.py`, version 2 of the dumps.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from devwidget.opening.stacks import users_sites
from devwidget.records.errors import UnreadableError
from devwidget.records.ranks.cluster import Cluster
from devwidget.records.ranks.merging import Heard, merge
from devwidget.records.ranks.rank import Collective, RankReport
from devwidget.records.schema.message import Message

_BYTES = {
    "Double": 8,
    "Long": 8,
    "ComplexFloat": 8,
    "ComplexDouble": 16,
    "Float": 4,
    "Int": 4,
    "Half": 2,
    "BFloat16": 2,
    "Short": 2,
}
_MOST_RANKS = 1 << 20


def is_dump(content: Any) -> bool:
    """Whether a file holds what a flight recorder writes."""
    return isinstance(content, dict) and isinstance(content.get("entries"), list) and "pg_config" in content


def read_dumps(contents: Mapping[str, Any]) -> Cluster:
    """The cluster of the dumps by the names of their files, which end in the number of the rank.

    Raises:
        ValueError: if one of them is something else.
    """
    try:
        reports = [_report(_rank(name, number), content) for number, (name, content) in enumerate(contents.items())]
    except (KeyError, TypeError, AttributeError, IndexError, json.JSONDecodeError) as error:
        said = f"{type(error).__name__} {error}"
        raise UnreadableError(Message("not a dump of torch's flight recorder: {error}", error=said)) from None
    return merge([_heard(report) for report in reports])


def _rank(name: str, number: int) -> int:
    digits = re.search(r"(\d{1,7})(\.\w+)?$", name)
    return int(digits[1]) if digits else number


def _heard(report: RankReport) -> Heard:
    waits = report.collective is not None and not report.collective.finished
    note = Message("its flight recorder has a collective that is not over") if waits else ""
    return Heard(report.rank, "hung" if waits else "answered", report, note=note)


def _report(rank: int, content: Mapping[str, Any]) -> RankReport:
    groups = {name: _members(group) for name, group in _groups(content["pg_config"])}
    entries = [entry for entry in content["entries"] if not entry.get("is_p2p")]
    waiting = [entry for entry in entries if not _finished(entry)]
    last = (waiting or entries[-1:])[:1]  # the first that is not over holds up all after it
    size = max([rank, *(member for members in groups.values() for member in members)]) + 1
    if size > _MOST_RANKS:
        raise UnreadableError(Message("not a dump of torch's flight recorder: a job of {size} ranks", size=size))
    stack = tuple(users_sites(last[0].get("frames", ()))) if last else ()
    collective = _collective(last[0], groups) if last else None
    return RankReport(rank, size, "", 0, collective=collective, stack=stack[::-1])


def _groups(config: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Name and description of each process group; older dumps sort them by rank."""
    inner = [group for value in config.values() if "ranks" not in value for group in value.items()]
    return inner or list(config.items())


def _members(group: Mapping[str, Any]) -> tuple[int, ...]:
    ranks = group["ranks"]
    return tuple(int(rank) for rank in (json.loads(ranks) if isinstance(ranks, str) else ranks))


def _finished(entry: Mapping[str, Any]) -> bool:
    return bool(entry["state"] == "completed" or entry.get("retired") or entry.get("time_discovered_completed_ns"))


def _collective(entry: Mapping[str, Any], groups: Mapping[str, tuple[int, ...]]) -> Collective:
    name, description = (*entry["process_group"], "")[:2]
    site = next(iter(users_sites(entry.get("frames", ()))), None)
    given = sum(map(_bytes, entry.get("input_sizes", ()), entry.get("input_dtypes", ())))
    members = groups.get(name) or groups.get("") or ()
    kind = str(entry["profiling_name"]).rpartition(":")[2]
    sequence = int(entry.get("collective_seq_id", 0))
    return Collective(kind, sequence, str(description or name), members, given, _finished(entry), site=site)


def _bytes(shape: Sequence[int], dtype: str) -> int:
    return math.prod(shape) * _BYTES.get(dtype, 1)
