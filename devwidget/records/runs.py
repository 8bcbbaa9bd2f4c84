"""Consecutive numbers, such as ranks, as runs."""

from __future__ import annotations

from collections.abc import Iterable

from devwidget.records.schema.fields import Size
from devwidget.records.schema.message import Message

Runs = tuple[tuple[Size, Size], ...]
"""First and last number of each run: `((0, 7), (12, 12))`."""


def runs_of(numbers: Iterable[int]) -> Runs:
    """Return `((0, 2), (5, 5))` for `0, 1, 2, 5`."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return tuple(found)


def format_runs(runs: Runs) -> Message:
    """Return `rank 3` or `ranks 0-7, 12`."""
    told = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    one = len(runs) == 1 and runs[0][0] == runs[0][1]
    if one:
        return Message("rank {ranks}", ranks=told)
    return Message("ranks {ranks}", ranks=told)
