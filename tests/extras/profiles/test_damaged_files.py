"""Files of other tools, damaged at random: each is refused with the place, or opens as a record that every view shows."""

from __future__ import annotations

import collections
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
from tests.extras.profiles.test_kineto import STEP
from tests.extras.profiles.test_memory_snapshot import BUILD, step
from tests.extras.ranks.test_flight_file import dump, entry
from tests.records.test_mutated_files import change_tree

Write = Callable[[Any], bytes]


def as_json(content: Any) -> bytes:
    return json.dumps(content).encode()


DUMP = dump(entry(1, "completed"), entry(2, "started"), entry(3, "scheduled"))
BLOCK = {"address": 1, "size": 512, "state": "active_allocated", "frames": BUILD}
KINDS: dict[str, tuple[Any, Write]] = {
    "flight recorder": (DUMP, pickle.dumps),
    "flight recorder as JSON": (json.loads(json.dumps(DUMP)), as_json),
    "memory snapshot": (step().snapshot(BLOCK), pickle.dumps),
    "profile": ({"traceEvents": STEP}, as_json),
}


def damaged(chance: random.Random, content: Any, write: Write) -> bytes:
    """Three of four times the values are others; else the bytes are."""
    if chance.random() < 0.25:
        return _other_bytes(chance, bytearray(write(content)))
    changed = pickle.loads(pickle.dumps(content))
    change_tree(chance, changed)
    return write(changed)


def _other_bytes(chance: random.Random, written: bytearray) -> bytes:
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(written) + 1)
        match chance.randrange(3):
            case 0:
                written[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
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
def test_a_hundred_damaged_files_of_each_kind_are_refused_or_shown(kind: str, tmp_path: pathlib.Path) -> None:
    found = outcomes(kind, 100, tmp_path)
    assert found["refused"] > 20
    assert found["shown"] > 10


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_damaged_files_of_each_kind_are_refused_or_shown(kind: str, tmp_path: pathlib.Path) -> None:
    print(f"10,000 damaged files of a {kind}: {dict(outcomes(kind, 10_000, tmp_path))}")


def test_a_damaged_file_is_refused_with_the_place(tmp_path: pathlib.Path) -> None:
    damaged = json.loads(json.dumps({"traceEvents": STEP}))
    damaged["traceEvents"][4]["name"] = [None]
    (tmp_path / "trace_0").write_bytes(as_json(damaged))
    with pytest.raises(DevwidgetError, match=r"traceEvents\[4\]\.name: expected a text"):
        devwidget.open(tmp_path / "trace_0")
