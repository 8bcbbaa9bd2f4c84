"""The watched runs of the ranks of a job, and the rank that the others wait for."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from devwidget.extras.watch.records.run import LineTime, StepRows, WatchedRun
from devwidget.records.schema.fields import Size
from devwidget.records.schema.record import Record

OWN_PARTS = ("data", "forward", "loss", "optimizer")
"""Parts of a step in which ranks seldom wait for each other, unlike backward and later parts."""
LEAST_SHARE = 0.2
"""Share of a step by which a part must be longer than on the other ranks to call its rank slow."""
LEAST_SECONDS = 0.001
_WARM = 10
"""Steps that are not compared at the start."""


class SlowRank(NamedTuple):
    """The rank that the others wait for.

    Attributes:
        rank: Its number.
        part: Part of the step.
        seconds: Time of this part on this rank.
        others: Time on the others.
        line: Line where most of the difference is spent; None without samples, or if no line has half of it.
    """

    rank: int
    part: str
    seconds: float
    others: float
    line: LineTime | None = None


@dataclass(frozen=True, slots=True)
class WatchedJob(Record):
    """The runs of several ranks.

    Attributes:
        ranks: Numbers in order.
        runs: Run of each rank.
    """

    ranks: tuple[Size, ...]
    runs: tuple[WatchedRun, ...]

    @property
    def slow_rank(self) -> SlowRank | None:
        """The rank whose data, forward pass, loss or optimizer is slower than that of the others; None without one."""
        means = {}
        for rank, run in zip(self.ranks, self.runs, strict=True):
            if len(run.steps) > _WARM:
                means[rank] = _mean_parts(run.steps)
        if len(means) < 2:
            return None
        compared = itertools.starmap(functools.partial(_compare_rank, means), itertools.product(means, OWN_PARTS))
        found = max(compared, key=lambda each: each.seconds - each.others)
        step = statistics.median(sum(parts.values()) for parts in means.values())
        longer = found.seconds - found.others
        if longer >= max(LEAST_SECONDS, LEAST_SHARE * step):
            return found._replace(line=self._find_line(found))
        return None

    def _find_line(self, slow: SlowRank) -> LineTime | None:
        own = self.runs[self.ranks.index(slow.rank)].lines
        others = [run.lines for rank, run in zip(self.ranks, self.runs, strict=True) if rank != slow.rank]
        longer = {}
        for line in own:
            if line.part == slow.part:
                longer[line] = line.seconds - statistics.median(_seconds_at(line, each) for each in others)
        found = max(longer, key=longer.__getitem__, default=None)
        if found is not None and longer[found] * 2 >= slow.seconds - slow.others:
            return found
        return None


def _seconds_at(line: LineTime, lines: Iterable[LineTime]) -> float:
    return sum(each.seconds for each in lines if (each.part, each.site.place) == (line.part, line.site.place))


def _compare_rank(means: Mapping[int, Mapping[str, float]], rank: int, part: str) -> SlowRank:
    others = statistics.median(parts[part] for other, parts in means.items() if other != rank)
    return SlowRank(rank, part, means[rank][part], others)


def _mean_parts(rows: StepRows) -> dict[str, float]:
    """Return seconds of each part per step, in the middle of the rows, without recorded steps."""
    plain = [at for at, recorded in enumerate(rows.recorded) if at >= _WARM and not recorded] or list(range(len(rows)))
    parts = (*OWN_PARTS, "backward", "other")
    return {part: statistics.median(getattr(rows, part)[at] / rows.count[at] for at in plain) / 1e6 for part in parts}
