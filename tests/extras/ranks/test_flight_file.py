"""Dumps of torch's flight recorder as a cluster: what each rank began last, and where it stands."""

from __future__ import annotations

import json
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import pytest

import devwidget
from devwidget.extras.ranks.records.cluster import Cluster

TORCH = "/env/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
FRAMES = [
    {"name": "all_reduce", "filename": TORCH, "line": 3245},
    {"name": "average", "filename": "/work/sync.py", "line": 7},
    {"name": "main", "filename": "/work/train.py", "line": 20},
]
REAL = """
import os, pickle, sys, time
os.environ["TORCH_FR_BUFFER_SIZE"] = "100"
import torch
import torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/meet", rank=0, world_size=1)
for _ in range(2):
    dist.all_reduce(torch.ones(3, 4))
dumped = torch._C._distributed_c10d._dump_fr_trace
while not all(entry["retired"] for entry in pickle.loads(dumped())["entries"]):  # another thread does that
    time.sleep(0.01)
open(f"{sys.argv[1]}/trace_0", "wb").write(dumped())
dist.destroy_process_group()
"""


def entry(number: int, state: str, kind: str = "nccl:all_reduce", **others: Any) -> dict[str, Any]:
    return {
        "frames": FRAMES,
        "record_id": number,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "profiling_name": kind,
        "input_sizes": [[3, 4]],
        "input_dtypes": ["Float"],
        "state": state,
        "retired": state == "completed",
        "is_p2p": False,
        **others,
    }


def dump(*entries: dict[str, Any]) -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": list(entries)}


def test_the_dumps_of_a_folder_say_who_waits_and_where(tmp_path: pathlib.Path) -> None:
    stuck = dump(entry(1, "completed"), entry(2, "started"), entry(3, "scheduled"))
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(stuck))
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps(dump(entry(1, "completed"))))
    (tmp_path / "notes.txt").write_text("{}")
    cluster = devwidget.open(tmp_path)
    assert isinstance(cluster, Cluster)
    assert [rank.state for rank in cluster.ranks] == ["hung", "answered", "unknown"]
    first = cluster.ranks[0].said.collective
    assert (first.kind, first.sequence, first.group, first.ranks, first.bytes) == ("all_reduce", 2, "default_pg", (0, 1, 2), 48)
    assert str(first.site) == "sync.py:7"
    assert [str(site) for site in cluster.ranks[0].said.stack] == ["train.py:20", "sync.py:7"]
    assert cluster.ranks[1].said.collective.finished


def test_a_dump_alone_is_one_rank_also_as_json(tmp_path: pathlib.Path) -> None:
    (tmp_path / "dump_2.json").write_text(json.dumps(dump(entry(4, "scheduled"))))
    cluster = devwidget.open(tmp_path / "dump_2.json")
    assert [rank.state for rank in cluster.ranks] == ["unknown", "unknown", "hung"]


@pytest.mark.process
def test_a_dump_of_this_torch_opens(tmp_path: pathlib.Path) -> None:
    subprocess.run([sys.executable, "-c", REAL, str(tmp_path)], check=True, capture_output=True, timeout=280)
    cluster = devwidget.open(tmp_path / "trace_0")
    collective = cluster.ranks[0].said.collective
    assert (collective.kind, collective.sequence, collective.bytes, collective.finished) == ("all_reduce", 2, 48, True)


@pytest.mark.parametrize(
    "content",
    [
        dump({"state": "started"}),
        {"pg_config": {"0": {"ranks": "[1, 4000000]"}}, "entries": []},
        {"pg_config": {"0": {"ranks": "__import__('os')"}}, "entries": []},
    ],
)
def test_what_only_looks_like_a_dump_is_refused(tmp_path: pathlib.Path, content: Any) -> None:
    (tmp_path / "dump_0").write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match="not a dump of torch's flight recorder"):
        devwidget.open(tmp_path / "dump_0")


def test_a_folder_without_dumps_says_so(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="nothing in the folder"):
        devwidget.open(tmp_path)
