"""Saved files, mutated at random: each is refused with ValueError, or loads as a record that every view shows."""

from __future__ import annotations

import collections
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from devwidget.records.errors import UnreadableError
from devwidget.records.loading.json_io import loads
from tests.every_view import show_all
from tests.saved_records import real_files, real_objects

VALUES = (
    None, True, False, 0, 1, -1, 7, 2**31, 2**63, 2**69, 10**400, -(10**400), 0.5, -0.0, 1e308, float("nan"), float("inf"),
    "", "x", "cpu", "cuda", "9" * 9, "\x1b[31m\n\r\x00\u202e</script><!--", "\ud800",
    [], {}, [[]], [1], ["x"], [None], {"x": 1}, [{}],
)  # fmt: skip


def mutated(chance: random.Random) -> str:
    """One file with one to three changes to its tree, or, now and then, to its text."""
    if chance.random() < 0.1:
        return _cut(chance, chance.choice(real_files()))
    envelope = chance.choice(real_objects())
    change_tree(chance, envelope)
    return json.dumps(envelope)


def change_tree(chance: random.Random, tree: Any) -> None:
    """One to three changes, each in a list or an object somewhere."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        places = list(_places(tree))
        if places:
            _change(chance, *chance.choice(places), tree)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place below a value, as its owner and its key."""
    keys = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in keys:
        yield value, key
        yield from _places(part)


def _change(chance: random.Random, owner: Any, key: Any, envelope: Any) -> None:
    what = chance.randrange(5)
    if what == 0:
        del owner[key]
    elif what == 1 and isinstance(owner, list):
        owner.insert(chance.randrange(len(owner) + 1), owner[key])
    elif what == 2 and isinstance(owner[key], int | float):
        owner[key] = owner[key] * chance.choice((-1, 2, 10**6)) + chance.choice((-1, 0, 1))
    elif what == 3:
        other, name = chance.choice(list(_places(envelope)))
        owner[key] = json.loads(json.dumps(other[name]))
    else:
        owner[key] = chance.choice(VALUES)


def _cut(chance: random.Random, text: str) -> str:
    start = chance.randrange(len(text))
    return (
        text[:start] + chance.choice(("", "[", "}", "1", "\\ud800", text[start + 1 :], '"' + text[start:])) + text[start + 2 :]
    )


def outcome(seed: int) -> str:
    try:
        record = loads(mutated(random.Random(seed)))
    except ValueError as error:
        return "refused" if type(error) is UnreadableError else f"refused with {type(error).__name__}"
    show_all(record)
    return "shown"


def outcomes(count: int) -> collections.Counter[str]:
    found: collections.Counter[str] = collections.Counter()
    for seed in range(count):
        try:
            found[outcome(seed)] += 1
        except Exception as error:
            raise AssertionError(f"file {seed} raises {type(error).__name__}: {error}") from error
    return found


def test_a_hundred_mutated_files_are_refused_or_shown() -> None:
    found = outcomes(100)
    assert found["refused"] + found["shown"] == 100
    assert found["shown"] > 10


@pytest.mark.fuzz
def test_two_thousand_mutated_files_are_refused_or_shown() -> None:
    found = outcomes(2000)
    print(f"2000 mutated files: {dict(found)}")
    assert found["refused"] + found["shown"] == 2000
