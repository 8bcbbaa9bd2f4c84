"""What torch's recorders dump is how far a rank has come."""

from __future__ import annotations

import json
import time
from typing import Any

from devwidget.extras.ranks.collectives import Group, describe_collective, find_open_entry, merge_counts, parse_progress
from devwidget.extras.ranks.records.rank import GroupProgress

GROUPS = {"0": Group("default_pg", (0, 1, 2, 3)), "4": Group("mesh_dp", (1, 3))}


def status(begun: int, finished: int) -> dict[str, str]:
    return {"last_enqueued_collective": str(begun), "last_completed_collective": str(finished), "last_started_collective": "-1"}


def entry(number: int, over: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "collective_seq_id": number, "is_p2p": False, "process_group": ["4", "mesh_dp"], "profiling_name": "gloo:all_reduce",
        "input_sizes": [[10, 2]], "input_dtypes": ["BFloat16"], "state": "scheduled", "retired": over,
        "time_created_ns": int((time.time() - 30) * 1e9),
    } | more  # fmt: skip


def test_counts_are_by_place_among_the_groups_of_a_process():
    told = {"pg_status": {"0": status(7, 7), "1": status(12, 11), "2": status(-1, -1)}}
    assert merge_counts([told], GROUPS) == (
        GroupProgress("default_pg", 7, 7, 0, 4),
        GroupProgress("mesh_dp", 12, 11, 1, 2),
        GroupProgress("2", 0, 0),
    )


def test_of_two_recorders_that_counts_which_has_seen_more():
    cpu, nccl = {"pg_status": {"0": status(3, 3)}}, {"pg_status": {"0": status(900, 899)}}
    assert merge_counts([cpu, nccl], GROUPS) == (GroupProgress("default_pg", 900, 899, 0, 4),)


def test_a_rank_waits_in_the_first_collective_that_is_not_over():
    found = find_open_entry([entry(1, over=True), entry(2, state="completed"), entry(3), entry(4)])
    assert found is not None
    told = describe_collective(found, GROUPS)
    assert (told.kind, told.sequence, told.group, told.ranks, told.bytes) == ("all_reduce", 3, "mesh_dp", (1, 3), 40)
    assert 29 < told.seconds < 60
    assert find_open_entry([entry(1, over=True)]) is None


def test_what_torch_sends_without_python_is_read_too():
    told = json.dumps({"entries": [entry(5, pg_id=3)], "pg_status": {"0": status(5, 4), "3": status(7, 6)}}).encode()
    collective, groups = parse_progress(told)
    assert collective is not None
    assert (collective.sequence, collective.ranks, groups) == (5, (), (GroupProgress("", 5, 4), GroupProgress("mesh_dp", 7, 6)))
