"""Files of other tools, damaged at random: each is refused with the place, or opens as a record that every view shows."""

from __future__ import annotations

import collections
import gzip
import json
import pathlib
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest

import devwidget
from devwidget.records.errors import DevwidgetError
from devwidget.records.loading.json_io import dumps, loads
from tests.every_view import show_all
from tests.foreign_files.test_flight_recorder import dump, entry
from tests.foreign_files.test_kineto import STEP
from tests.foreign_files.test_memory_snapshot import BUILD, step
from tests.records.test_mutated_files import VALUES, _places
from tests.saved_records import real_files

Write = Callable[[Any], bytes]
MORE = (*VALUES, (1,), {1: 2}, b"x", [[1]], {"a": []})


def as_json(content: Any) -> bytes:
    return json.dumps(content).encode()


def zipped(content: Any) -> bytes:
    return gzip.compress(as_json(content), mtime=0)


DUMP = dump(entry(1, "completed"), entry(2, "started"), entry(3, "scheduled"))
BLOCK = {"address": 1, "size": 512, "state": "active_allocated", "frames": BUILD}
KINDS: dict[str, tuple[Any, Write]] = {
    "flight recorder": (DUMP, pickle.dumps),
    "flight recorder as JSON": (json.loads(json.dumps(DUMP)), as_json),
    "memory snapshot": (step().snapshot(BLOCK), pickle.dumps),
    "profile": ({"traceEvents": STEP}, as_json),
    "zipped profile": ({"traceEvents": STEP}, zipped),
}


def damaged(chance: random.Random, content: Any, write: Write) -> bytes:
    """Three of four times the values are others; else the bytes are."""
    if chance.random() < 0.25:
        return _other_bytes(chance, bytearray(write(content)))
    box = {"root": pickle.loads(pickle.dumps(content))}
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        _change(chance, box)
    try:
        return write(box["root"])
    except (TypeError, OverflowError):  # no JSON: the bytes are damaged in its place
        return _other_bytes(chance, bytearray(write(content)))


def _change(chance: random.Random, box: dict[str, Any]) -> None:
    places = [place for place in _places(box) if place[0] is not box] or [*_places(box)]
    (owner, key), (other, name) = chance.choice(places), chance.choice(places)
    match chance.randrange(3):
        case 0 if owner is not box:
            del owner[key]
        case 1:
            owner[key] = chance.choice(MORE)
        case _:
            owner[key] = pickle.loads(pickle.dumps(other[name]))


def _other_bytes(chance: random.Random, written: bytearray) -> bytes:
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(written) + 1)
        match chance.randrange(4):
            case 0:
                written[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del written[at : at + chance.randrange(1, 9)]
            case 2:
                written[at:at] = chance.randbytes(chance.randrange(1, 5))
            case _:
                del written[at:]
    return bytes(written)


def outcome(path: pathlib.Path, *, whole: bool) -> str:
    """Whether it is refused or shown, each in a way of ours."""
    try:
        record = devwidget.open(path)
    except DevwidgetError:
        return "refused"
    assert loads(dumps(record)) == record
    if whole:
        show_all(record)
    return "shown"


def outcomes(kind: str, count: int, folder: pathlib.Path) -> collections.Counter[str]:
    content, write = KINDS[kind]
    found: collections.Counter[str] = collections.Counter()
    for seed in range(count):
        path = folder / "trace_0"
        path.write_bytes(damaged(random.Random(f"{kind} {seed}"), content, write))
        try:
            found[outcome(path, whole=seed % 50 == 0)] += 1
        except Exception as error:
            raise AssertionError(f"{kind} {seed} raises {type(error).__name__}: {error}") from error
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_five_hundred_damaged_files_of_each_kind_are_refused_or_shown(kind: str, tmp_path: pathlib.Path) -> None:
    found = outcomes(kind, 500, tmp_path)
    assert found["refused"] > 100
    assert found["shown"] > 50


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_damaged_files_of_each_kind_are_refused_or_shown(kind: str, tmp_path: pathlib.Path) -> None:
    print(f"10,000 damaged files of a {kind}: {dict(outcomes(kind, 10_000, tmp_path))}")


def test_records_of_ours_with_other_bytes_are_refused_or_shown(tmp_path: pathlib.Path) -> None:
    chance = random.Random(5)
    for _ in range(500):
        (tmp_path / "record").write_bytes(_other_bytes(chance, bytearray(chance.choice(real_files()).encode())))
        outcome(tmp_path / "record", whole=False)


@pytest.mark.parametrize(
    ("kind", "path", "place"),
    [
        (
            "flight recorder",
            ("entries", 1, "frames", 0, "name"),
            r"entries\[1\]\.frames\[0\]\.name: expected a text, got a list",
        ),
        ("flight recorder", ("entries", 2, "state"), r"entries\[2\]\.state: expected a text, got a list"),
        ("flight recorder", ("pg_config", "0", "ranks"), r"pg_config\[0\]"),
        ("memory snapshot", ("device_traces", 0, 2, "addr"), r"device_traces\[0\]\[2\]: TypeError: unhashable"),
        (
            "memory snapshot",
            ("segments", 0, "blocks", 0, "size"),
            r"segments\[0\]: expected bytes, less than 2",
        ),
        ("profile", ("traceEvents", 4, "name"), r"traceEvents\[4\]\.name: expected a text"),
        ("profile", ("traceEvents", 2, "args", "bytes"), r"traceEvents\[2\]: TypeError"),
    ],
)
def test_a_damaged_file_is_refused_with_the_place(kind: str, path: tuple[Any, ...], place: str, tmp_path: pathlib.Path) -> None:
    content, write = KINDS[kind]
    changed = owner = pickle.loads(pickle.dumps(content))
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = [None]
    (tmp_path / "trace_0").write_bytes(write(changed))
    with pytest.raises(DevwidgetError, match=place):
        devwidget.open(tmp_path / "trace_0")
