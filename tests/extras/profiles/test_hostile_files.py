"""Small files that claim much: each is refused with an error of ours, in little memory and little time."""

from __future__ import annotations

import gzip
import io
import json
import os
import pathlib
import pickle
import socket
import struct
import subprocess
import sys
import zipfile
from typing import Any

import pytest

import devwidget
from devwidget import DevwidgetError
from devwidget.records.loading.untrusted_files import Implausible, scan_pickle

MIB = 1 << 20


def shared(depth: int) -> list[Any]:
    """A list of ten that are one list of ten, and so on: a few bytes that have no end when they are walked through."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found] * 10
    return found


def snapshot(**trace: Any) -> bytes:
    return pickle.dumps({"segments": [], "device_traces": [trace["events"]]})


def archive(size: int) -> bytes:
    """Zeros, as a file of weights packs them."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("data.pkl", bytes(size))
    return written.getvalue()


STACK = [{"filename": "a.py", "line": 1, "name": "f"}] * 20_000
ALLOCATION = {"action": "alloc", "addr": 1, "size": 5, "frames": STACK}
HUGE = struct.pack("<Q", 1 << 40)
BOMBS: dict[str, bytes] = {
    "memo": b"\x80\x04Nr\xff\xff\xff\x7f.",
    "frame": b"\x80\x04\x95" + HUGE + b".",
    "text": b"\x80\x04\x8d" + HUGE + b".",
    "number": b"\x80\x02\x8b\xff\xff\xff\x7f1.",
    "sets": b"\x80\x04(" + b"\x8f" * MIB + b"l.",
    "tuples in tuples": b"\x80\x04})" + b"\x85" * 200_000 + b"Ns.",
    "one list again": pickle.dumps({"segments": [], "device_traces": shared(40)}),
    "one stack again": snapshot(events=[dict(ALLOCATION) for _ in range(20_000)]),
    "one entry again": pickle.dumps({"pg_config": {}, "entries": [{"state": "started", "frames": STACK}] * 20_000}),
    "gzip": gzip.compress(b'{"traceEvents": [' + b" " * (128 * MIB) + b"]}"),
    "broken gzip": gzip.compress(b'{"traceEvents": []}')[:-9] + b"123456789",
    "nested JSON": b"[" * 500_000 + b"]" * 500_000,
    "nested record": b'{"devwidget": 1, "record": "Trace", "data": ' + b'{"a":' * 200_000 + b"1" + b"}" * 200_001,
    "long number": b'{"devwidget": 1, "record": "Trace", "data": ' + b"9" * MIB + b"}",
    "archive": archive(64 * MIB),
    "UTF-16": '{"traceEvents": 5}'.encode("utf-16"),
    "nothing": b"",
    "zeros": bytes(MIB),
}

_OPENED = """
import pathlib, re, sys
from devwidget.records.loading.other_files import open_file
from devwidget.records.loading.json_io import load
from devwidget.records.errors import DevwidgetError
for path in sys.argv[1:]:
    for way in (open_file, load):
        try:
            way(path)
            said = "opened"
        except DevwidgetError:
            said = "refused"
        peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) // 1024
        print(pathlib.Path(path).name, way.__name__, said, peak, sep="|")
"""


@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="the most memory is what Linux tells")
@pytest.mark.process
def test_files_that_claim_much_are_refused_in_little_memory(tmp_path: pathlib.Path) -> None:
    for name, content in BOMBS.items():
        (tmp_path / name).write_bytes(content)
    asked = [sys.executable, "-c", _OPENED, *(str(tmp_path / name) for name in BOMBS)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|") for line in done.stdout.splitlines()]
    assert len(rows) == 2 * len(BOMBS)
    assert [row for row in rows if row[2] != "refused" or int(row[3]) >= 150] == []


@pytest.mark.parametrize("way", [devwidget.open, devwidget.load], ids=["open", "load"])
@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "socket", "device", "folder"])
def test_what_is_no_regular_file_is_refused_at_once(kind: str, way: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    with socket.socket(socket.AF_UNIX) as listening:
        {
            "pipe": lambda: os.mkfifo(path),
            "link to a pipe": lambda: (os.mkfifo(tmp_path / "pipe"), path.symlink_to(tmp_path / "pipe")),
            "socket": lambda: listening.bind(str(path)),
            "device": lambda: path.symlink_to("/dev/zero"),
            "folder": lambda: path.mkdir(),
        }[kind]()
        with pytest.raises(DevwidgetError, match=r"not a regular file|nothing in the folder"):
            way(path)


def test_a_folder_with_pipes_and_devices_is_read_past_them(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe_0")
    (tmp_path / "zero_1").symlink_to("/dev/zero")
    (tmp_path / "bomb_2").write_bytes(BOMBS["memo"])
    (tmp_path / "dump_3").write_text(json.dumps({"pg_config": {"0": {"ranks": "[0, 3]"}}, "entries": []}))
    assert len(devwidget.open(tmp_path).ranks) == 4


def test_plain_values_pass_in_every_protocol() -> None:
    numbers = [0, -1, 255, 2**31, -(2**40), 2**62, 2**70, 10**400, 0.5, float("inf"), True, None]
    texts = ["a" * size for size in (0, 255, 256, 70_000)]
    many = [{"name": str(at), "same": texts} for at in range(2_000)]
    for protocol in range(6):
        scan_pickle(pickle.dumps([numbers, texts, [(), (1,), ((1, 2), 3, 4, 5)], many], protocol=protocol))


@pytest.mark.parametrize("size", [1, 300, 70_000])
def test_a_number_in_a_table_is_held_against_the_bytes_of_the_file(size: int) -> None:
    filling = b"N0" * (size // 2)
    scan_pickle(b"\x80\x02" + filling + b"Nr" + struct.pack("<I", size // 2) + b".")
    with pytest.raises(Implausible, match="byte "):
        scan_pickle(b"\x80\x02" + filling + b"Nr" + struct.pack("<I", 2 * size + 600) + b".")
