"""A traced step as lanes: a lane for each rank, or for each kind where there are many; what meets stands at one place."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.records.ranks.runs import Runs, numbers_in
from devwidget.records.ranks.traced import TracedJob, TracedStep
from devwidget.views.ranks.meetings import Meeting, meetings
from devwidget.views.ranks.placing import Band, Box, Call, Walk, meet

MOST_RANKS = 8
"""Lanes with a rank each; of more ranks those that did the same share one."""
MOST_LANES = 24


@dataclass(frozen=True, slots=True)
class Lane:
    """What one rank did, or all of a kind.

    Attributes:
        ranks: which ones.
        boxes: modules, outer ones first.
        bands: phases, in order.
    """

    ranks: Runs
    boxes: tuple[Box, ...]
    bands: tuple[Band, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """A collective as it is drawn: the lanes that take part, each with its place; and what it is."""

    ends: tuple[tuple[int, float], ...]
    meeting: Meeting


@dataclass(frozen=True, slots=True)
class StepLanes:
    """The drawing of a step, in units in which a module without anything inside is one wide.

    Attributes:
        lanes: from top to bottom.
        links: in the order of their groups.
        width: of the whole.
        modules_left_out: that are not drawn.
        kinds_left_out: kinds of ranks that have no lane.
    """

    lanes: tuple[Lane, ...]
    links: tuple[Link, ...]
    width: float
    modules_left_out: int = 0
    kinds_left_out: int = 0


def step_lanes(job: TracedJob) -> StepLanes:
    """The lanes of a job, with what its ranks began together drawn at one place."""
    rows = _rows(job)
    lane_of = {number: at for at, (ranks, _) in enumerate(rows) for number in numbers_in(ranks)}
    met = meetings(job, every_group=len(job.ranks) <= MOST_RANKS)
    ends = [tuple(dict.fromkeys(Call(lane_of[rank], at) for rank, at in each.parts if rank in lane_of)) for each in met]
    walks = [Walk(step) for _, step in rows]
    places = meet(walks, ends)
    lanes = tuple(Lane(ranks, *walk.drawn()) for (ranks, _), walk in zip(rows, walks, strict=True))
    links = tuple(
        Link(tuple((call.lane, places[call]) for call in calls), each) for calls, each in zip(ends, met, strict=True) if calls
    )
    width = max((walk.at for walk in walks), default=0.0)
    return StepLanes(lanes, links, width, sum(walk.left_out for walk in walks), max(0, len(job.kinds) - len(rows)))


def _rows(job: TracedJob) -> list[tuple[Runs, TracedStep]]:
    if len(job.ranks) <= MOST_RANKS:
        return [(((rank.number, rank.number),), job.kinds[rank.kind].step) for rank in job.ranks]
    return [(kind.ranks, kind.step) for kind in job.kinds[:MOST_LANES]]
