"""Small files that claim much: each is refused with an error of ours, in little memory and little time."""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import pickle
import socket
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from typing import Any

import pytest

import devwidget
from devwidget import DevwidgetError
from devwidget.foreign_files.untrusted_files import Implausible, scan_pickle

MIB = 1 << 20


def shared(depth: int) -> list[Any]:
    """A list of ten that are one list of ten, and so on: a few bytes that have no end when they are walked through."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found] * 10
    return found


def snapshot(**trace: Any) -> bytes:
    return pickle.dumps({"segments": [], "device_traces": [trace["events"]]})


STACK = [{"filename": "a.py", "line": 1, "name": "f"}] * 20_000
GROUP = {"ranks": list(range(20_000))}
ALLOCATION = {"action": "alloc", "addr": 1, "size": 5, "frames": STACK}
HUGE = struct.pack("<Q", 1 << 40)
BOMBS: dict[str, bytes] = {
    "memo": b"\x80\x04Nr\xff\xff\xff\x7f.",
    "memo as text": b"\x80\x02Np2147483647\n.",
    "frame": b"\x80\x04\x95" + HUGE + b".",
    "bytes": b"\x80\x04\x8e" + HUGE + b".",
    "text": b"\x80\x04\x8d" + HUGE + b".",
    "short text": b"\x80\x04X\xff\xff\xff\x7fa.",
    "number": b"\x80\x02\x8b\xff\xff\xff\x7f1.",
    "bytearray": b"\x80\x05\x96" + HUGE + b".",
    "sets": b"\x80\x04(" + b"\x8f" * MIB + b"l.",
    "tuples in tuples": b"\x80\x04})" + b"\x85" * 200_000 + b"Ns.",
    "lists in lists": b"\x80\x04" + b"]" * 200_000 + b"a" * 199_999 + b".",
    "one list again": pickle.dumps({"segments": [], "device_traces": shared(40)}),
    "one stack again": snapshot(events=[dict(ALLOCATION) for _ in range(20_000)]),
    "one group again": pickle.dumps({"pg_config": {str(at): GROUP for at in range(20_000)}, "entries": []}),
    "one entry again": pickle.dumps({"pg_config": {}, "entries": [{"state": "started", "frames": STACK}] * 20_000}),
    "gzip": gzip.compress(b'{"traceEvents": [' + b" " * (128 * MIB) + b"]}"),
    "gzip of brackets": gzip.compress(b"[" + b"[]," * (8 * MIB) + b"[]]", 1),
    "broken gzip": gzip.compress(b'{"traceEvents": []}')[:-9] + b"123456789",
    "nested JSON": b"[" * 500_000 + b"]" * 500_000,
    "nested record": b'{"devwidget": 1, "record": "Trace", "data": ' + b'{"a":' * 200_000 + b"1" + b"}" * 200_001,
    "long number": b'{"devwidget": 1, "record": "Trace", "data": ' + b"9" * MIB + b"}",
    "long exponent": b'{"devwidget": 1e999999999, "record": "Trace"}',
    "UTF-16": '{"traceEvents": 5}'.encode("utf-16"),
    "nothing": b"",
    "one byte": b"\x80",
    "zeros": bytes(MIB),
}

_OPENED = """
import pathlib, re, sys
from devwidget.foreign_files import open_file
from devwidget.records.loading.json_io import load
from devwidget.records.errors import DevwidgetError
for way in (open_file, load):
    try:
        print("opened as", type(way(sys.argv[1])).__name__)
    except DevwidgetError as error:
        print("refused:", str(error)[:300].replace("\\n", " "))
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="the most memory is what Linux tells")
@pytest.mark.parametrize("name", BOMBS)
def test_a_file_that_claims_much_is_refused_in_little_memory(name: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(BOMBS[name])
    done = subprocess.run([sys.executable, "-c", _OPENED, str(tmp_path / "file")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    *said, peak = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in said] == ["refused", "refused"]
    assert int(peak) < 150


@pytest.mark.parametrize(
    ("way", "words"),
    [(devwidget.open, r"^it begins as no file does that can be opened\n"), (devwidget.load, r"no UTF-8 text")],
    ids=["open", "load"],
)
def test_an_archive_is_refused_without_being_unpacked(way: Any, words: str, tmp_path: pathlib.Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.pkl", bytes(64 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(DevwidgetError, match=words):
            way(tmp_path / "model.pt")
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


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
        with pytest.raises(DevwidgetError, match=r"no regular file|no flight-recorder dump"):
            way(path)


def test_a_folder_with_pipes_and_devices_is_read_past_them(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe_0")
    (tmp_path / "zero_1").symlink_to("/dev/zero")
    (tmp_path / "bomb_2").write_bytes(BOMBS["memo"])
    (tmp_path / "dump_3").write_text(json.dumps({"pg_config": {"0": {"ranks": "[0, 3]"}}, "entries": []}))
    assert len(devwidget.open(tmp_path).ranks) == 4


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_pass_in_every_protocol(protocol: int) -> None:
    numbers = [0, -1, 255, 2**31, -(2**40), 2**62, 2**70, 10**400, 0.5, float("inf"), True, None]
    texts = ["a" * size for size in (0, 255, 256, 70_000)]
    many = [{"name": str(at), "same": texts} for at in range(2_000)]
    scan_pickle(pickle.dumps([numbers, texts, [(), (1,), ((1, 2), 3, 4, 5)], many], protocol=protocol))


@pytest.mark.parametrize("size", [1, 200, 300, 70_000, 20_000_000])
def test_a_number_in_a_table_is_held_against_the_bytes_of_the_file(size: int) -> None:
    filling = b"N0" * (size // 2)
    scan_pickle(b"\x80\x02" + filling + b"Nr" + struct.pack("<I", size // 2) + b".")
    with pytest.raises(Implausible, match="byte "):
        scan_pickle(b"\x80\x02" + filling + b"Nr" + struct.pack("<I", 2 * size + 600) + b".")
