"""Memory snapshots of torch: who owns the peak, and hostile pickles."""

from __future__ import annotations

import pathlib
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch

import devwidget
from devwidget.extras.profiles.memory_snapshot import INFERRED, owned_share
from devwidget.records.loading.stacks import read_stack
from devwidget.records.memory import ROLES
from devwidget.report.text.memory_words import memory_cards

KIB = 1024
Frame = dict[str, Any]


def frame(file: str, line: int, name: str) -> Frame:
    return {"filename": file, "line": line, "name": name}


TORCH = "/env/lib/python3.12/site-packages/torch/"
MAIN = [frame("/work/train.py", 9, "main"), frame("/work/train.py", 20, "<module>")]
CALL = frame(f"{TORCH}nn/modules/module.py", 1800, "_call_impl")
FORWARD = [
    *(frame(f"{TORCH}nn/functional.py", 7, "gelu"), frame("/work/block.py", 4, "forward"), CALL),
    *(frame("/work/net.py", 8, "forward"), CALL, *MAIN),
]
BUILD = [frame(f"{TORCH}nn/modules/module.py", 900, "_apply"), frame(f"{TORCH}nn/modules/module.py", 1300, "to"), *MAIN]
LOSS = [
    frame(f"{TORCH}nn/functional.py", 3000, "cross_entropy"),
    frame(f"{TORCH}nn/modules/loss.py", 1100, "forward"),
    CALL,
    *MAIN,
]
OPTIMIZER = [frame(f"{TORCH}optim/adam.py", 170, "_init_group"), frame(f"{TORCH}optim/optimizer.py", 500, "wrapper"), *MAIN]
ENGINE = [frame("??", 0, "torch::autograd::Engine::evaluate_function(void*)")]


class History:
    """Writes the events of a GPU as the allocator does."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._next = 1 << 40

    def alloc(self, kib: int, frames: list[Frame]) -> tuple[int, int]:
        self._next += kib * KIB
        self.add("alloc", self._next, kib * KIB, frames)
        return self._next, kib * KIB

    def free(self, block: tuple[int, int], frames: list[Frame]) -> None:
        self.add("free_requested", *block, frames)
        self.add("free_completed", *block, frames)

    def add(self, action: str, addr: int, size: int, frames: list[Frame]) -> None:
        self.events.append({"action": action, "addr": addr, "size": size, "stream": 0, "frames": list(frames)})

    def snapshot(self, *older: dict[str, Any]) -> dict[str, Any]:
        segment = {"device": 0, "address": 1 << 30, "total_size": 1 << 30, "blocks": list(older)}
        return {"segments": [segment], "device_traces": [self.events], "allocator_settings": {}}


def step() -> History:
    """A step of training: 64 KiB of parameters, 32 kept and 16 not in forward, gradients, Adam's state."""
    history = History()
    history.alloc(64, BUILD)
    batch = history.alloc(2, MAIN)
    kept, passing = history.alloc(32, FORWARD), history.alloc(16, FORWARD)
    history.free(passing, FORWARD)
    loss = history.alloc(1, LOSS)
    gradient, temporary = history.alloc(64, []), history.alloc(8, ENGINE)
    for block in (temporary, kept, loss):
        history.free(block, [])
    history.alloc(128, OPTIMIZER)
    history.free(gradient, OPTIMIZER)
    history.free(batch, MAIN)
    return history


def opened(folder: pathlib.Path, content: Any) -> Any:
    path = folder / "snapshot.pickle"
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    return devwidget.open(path)


def test_the_bytes_of_the_peak_have_owners_roles_and_lines(tmp_path: pathlib.Path) -> None:
    trace = opened(tmp_path, step().snapshot())
    (curve,) = trace.memory
    assert curve.peak.allocated == (64 + 2 + 64 + 128) * KIB
    assert [(held.role, held.bytes // KIB, held.phase, str(held.site)) for held in curve.holdings] == [
        ("optimizer", 128, "optimizer", "train.py:9"),
        ("parameters", 64, "build", "train.py:9"),
        ("gradients", 64, "backward", "None"),
        ("inputs", 2, "other", "train.py:9"),
    ]
    in_forward = next(point for point in curve.points if point.allocated == (64 + 2 + 32 + 16) * KIB)
    assert (in_forward.activations, in_forward.other) == (32 * KIB, 16 * KIB)
    assert (in_forward.module, str(in_forward.site)) == ("net/block", "block.py:4")
    assert owned_share(curve) == 1
    assert trace.not_checked == (INFERRED,)
    assert "inferred from the stacks" in str(trace)


def test_the_parts_of_every_point_add_up(tmp_path: pathlib.Path) -> None:
    older = {"address": 1 << 30, "size": 4 * KIB, "state": "active_allocated", "frames": []}
    history = step()
    history.add("free_requested", 77, 3 * KIB, [])
    (curve,) = opened(tmp_path, history.snapshot(older)).memory
    assert [sum(getattr(point, role) for role in ROLES) for point in curve.points] == [p.allocated for p in curve.points]
    assert curve.points[0].allocated == 7 * KIB
    assert curve.points[-1].allocated == (64 + 128 + 4) * KIB
    assert curve.peak.foreign == 7 * KIB


def test_what_did_not_fit_is_told_with_its_line(tmp_path: pathlib.Path) -> None:
    history = step()
    history.events.append({"action": "oom", "size": 9 << 30, "device_free": 1 << 20, "stream": 0, "frames": FORWARD})
    trace = opened(tmp_path, history.snapshot())
    assert "cuda:0 had no room for 9.00 GiB in forward of net/block, block.py:4" in str(trace)


def test_names_that_the_program_set_are_read_and_shown(tmp_path: pathlib.Path) -> None:
    history = History()
    history.alloc(64, MAIN)
    for name, kib in (("kv cache", 32), ("kv cache", 32), ("", 8)):
        history.alloc(kib, MAIN)
        history.events[-1]["user_metadata"] = name
    trace = opened(tmp_path, history.snapshot())
    assert [(held.name, held.bytes // KIB) for held in trace.memory[0].holdings] == [("", 72), ("kv cache", 64)]
    assert memory_cards(trace)["holdings"][1]["role"] == "batch, `kv cache`"


def test_virtual_gpus_write_names_that_are_read_again(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "snapshot.pickle"
    with devwidget.simulate(gpus=1):
        torch.cuda.memory._record_memory_history()
        torch.cuda.memory._set_memory_metadata("table")
        table = torch.zeros(1024, device="cuda")
        torch.cuda.memory._set_memory_metadata("")
        rest = torch.ones(512, device="cuda")
        del rest
        torch.cuda.memory._dump_snapshot(str(path))
    (curve,) = devwidget.open(path).memory
    assert [(held.name, held.bytes) for held in curve.holdings] == [("table", 4096), ("", 2048)]
    assert curve.holdings[0].site.file.endswith("test_memory_snapshot.py")
    assert table.numel() == 1024


def test_a_history_that_is_off_or_limited_keeps_so_many_events() -> None:
    with devwidget.simulate(gpus=1, card="T4"):
        torch.cuda.memory._record_memory_history(max_entries=1)
        kept = [torch.zeros(8, device="cuda") for _ in range(3)]
        (event,) = torch.cuda.memory._snapshot()["device_traces"][0]
        assert event["addr"] in [block["address"] for block in torch.cuda.memory_snapshot()[0]["blocks"]]
        torch.cuda.memory._record_memory_history(enabled=None)
        kept.append(torch.zeros(8, device="cuda"))
        assert torch.cuda.memory._snapshot()["device_traces"] == [[]]


def test_long_histories_keep_their_peak_in_few_points(tmp_path: pathlib.Path) -> None:
    history = History()
    for number in range(20_000):
        history.free(history.alloc(512 if number == 12_345 else 1, FORWARD), FORWARD)
    (curve,) = opened(tmp_path, history.snapshot()).memory
    assert curve.peak.allocated == 512 * KIB
    assert len(curve.points) <= 1002


@pytest.mark.parametrize(
    ("frames", "phase"),
    [(BUILD, "build"), (FORWARD, "forward"), (LOSS, "loss"), (OPTIMIZER, "optimizer"), (ENGINE, "backward"), (MAIN, "other")],
)
def test_the_stack_tells_the_part_of_the_step(frames: list[Frame], phase: str) -> None:
    assert read_stack(frames).phase == phase


class Runs:
    def __init__(self, function: Any, *args: Any) -> None:
        self.given = function, args

    def __reduce__(self) -> Any:
        return self.given


HOSTILE: dict[str, bytes] = {
    "system": pickle.dumps(Runs(subprocess.check_output, ["touch", "touched"])),
    "eval": pickle.dumps(Runs(eval, "open('touched', 'w')")),
    "old protocol": pickle.dumps(Runs(eval, "1"), protocol=0),
    "old protocol, begun as a new one": b"\x80\x02" + pickle.dumps(Runs(eval, "1"), protocol=0),
    "nested": pickle.dumps({"segments": [], "device_traces": [[{"frames": Runs(eval, "1")}]]}),
    "set": pickle.dumps({"segments": [], "device_traces": [{1, 2}]}),
    "global alone": b"\x80\x04cantigravity\nfly\n.",
    "stack global": b"\x80\x04\x8c\x0bantigravity\x8c\x03fly\x93.",
    "instance": b"\x80\x02(iantigravity\nfly\n.",
    "object": b"\x80\x02(cantigravity\nfly\no.",
    "new object": b"\x80\x02cantigravity\nfly\n)\x81.",
    "extension": b"\x80\x02\x82\x01.",
    "persistent": b"\x80\x04\x8c\x01aQ.",
    "old persistent": b"\x80\x02Pa\n.",
    "dotted": b"\x80\x04\x8c\x08builtins\x8c\x0dstr.__class__\x93.",
    "calls a text": b"\x80\x04\x8c\x01a)R.",
    "state of a list": b"\x80\x04]}b.",
    "buffer": b"\x80\x05\x97.",
    "cut off": pickle.dumps(step().snapshot())[:500],
    "no snapshot": pickle.dumps([1, 2]),
    "negative": pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": -5, "frames": []}]]}),
    "name of another type": pickle.dumps(
        {"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": 5, "frames": [], "user_metadata": [1]}]]}
    ),
    "again and again": pickle.dumps({"segments": [], "device_traces": [[[]] * 1000] * 1000}),
}


REFUSED_UNREAD = {"old protocol": r"^its first bytes match no known file format\n"}
"""A pickle since protocol 2 begins with its number; whatever begins otherwise is read no further."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pickle_is_refused_and_nothing_is_imported(tmp_path: pathlib.Path, name: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=REFUSED_UNREAD.get(name, r"not a|too many times")):
        opened(tmp_path, HOSTILE[name])
    assert [path.name for path in tmp_path.iterdir()] == ["snapshot.pickle"]
    assert "antigravity" not in sys.modules
