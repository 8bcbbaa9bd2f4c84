"""A traced step as lanes: one for each rank, or for each kind where there are many; what meets stands at one place."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from devwidget.extras.ranks.records.traced_steps import ModuleSpan, TracedJob, TracedStep
from devwidget.extras.ranks.views.meetings import Meeting, find_meetings
from devwidget.records.runs import Runs, numbers_in
from devwidget.records.site import Phase

MOST_BOXES = 240
"""In one lane; deeper modules are left out first."""
MOST_BANDS = 24
"""A loop of many steps changes its phase too often for bands to be read."""
_SHOWN: tuple[Phase, ...] = ("forward", "loss", "backward", "optimizer")


class LaneBox(NamedTuple):
    """A module's first call, from one place of the drawing to another; the level is how deep it stands in others."""

    span: ModuleSpan
    start: float
    stop: float
    level: int


class LaneBand(NamedTuple):
    """A phase of the step in one lane."""

    phase: Phase
    start: float
    stop: float


class LaneCall(NamedTuple):
    """A collective in a lane: the lane, and its place among those of the step."""

    lane: int
    place: int


class _LaneEvent(NamedTuple):
    """What happens at one place of a trace: a phase begins, a module begins or ends, a collective begins."""

    number: int
    what: Literal["phase", "begin", "call", "end"]
    which: int


_ORDER = ("phase", "begin", "call", "end")


class Walk:
    """One lane, walked from collective to collective.

    Attributes:
        at: how far it has come: a module without anything inside takes one unit, and so does a collective.
        left_out: modules that are not drawn.
    """

    def __init__(self, step: TracedStep) -> None:
        self.at = 0.0
        spans = sorted(step.modules, key=lambda span: (span.path.count("."), span.start))[:MOST_BOXES]
        self._spans = sorted(spans, key=lambda span: (span.start, -span.stop))
        self.left_out = len(step.modules) - len(self._spans)
        self._phases = [phase for phase, _ in step.phases]
        self._events = self._in_order(step)
        self._next = 0
        self._starts: dict[int, float] = {}
        self._stops: dict[int, float] = {}
        self._turns: list[float] = []
        self._inside: int | None = None

    def _in_order(self, step: TracedStep) -> list[_LaneEvent]:
        events = [_LaneEvent(number, "phase", at) for at, (_, number) in enumerate(step.phases)]
        for at, span in enumerate(self._spans):
            events += [_LaneEvent(span.start, "begin", at), _LaneEvent(span.stop, "end", at)]
        events += [_LaneEvent(call.number, "call", at) for at, call in enumerate(step.collectives)]
        return sorted(events, key=lambda event: (event.number, _ORDER.index(event.what)))

    def go_to_call(self) -> int | None:
        """Go on to the next collective: its place; None at the end."""
        while self._next < len(self._events):
            _, what, which = self._events[self._next]
            if what == "call":
                return which
            self._pass_event(what, which)
            self._next += 1
        return None

    def _pass_event(self, what: str, which: int) -> None:
        if what == "phase":
            self._turns.append(self.at)
        elif what == "begin":
            self._starts[which], self._inside = self.at, which
        else:
            self.at += self._inside == which  # nothing was inside
            self._stops[which], self._inside = self.at, None

    def pass_call(self, at: float) -> None:
        """Pass the collective, which is drawn here."""
        self.at, self._inside = at + 0.5, None
        self._next += 1

    def draw_lane(self) -> tuple[tuple[LaneBox, ...], tuple[LaneBand, ...]]:
        """The boxes and bands of a lane that has come to its end."""
        running: list[float] = []
        boxes = []
        for which, span in enumerate(self._spans):
            while running and running[-1] <= span.start:
                running.pop()
            boxes.append(LaneBox(span, self._starts[which], self._stops[which], len(running)))
            running.append(span.stop)
        ends = [*self._turns[1:], self.at]
        bands = (LaneBand(*each) for each in zip(self._phases, self._turns, ends, strict=True) if each[0] in _SHOWN)
        wide = tuple(band for band in bands if band.stop > band.start)
        return tuple(boxes), wide if len(wide) <= MOST_BANDS else ()


def place_collectives(walks: Sequence[Walk], together: Iterable[Sequence[LaneCall]]) -> dict[LaneCall, float]:
    """Walk all lanes to their end; where each collective is drawn: at one place in all lanes that begin it together.

    Lanes that begin collectives of several groups in different orders cannot all have them at one place: then one of them is
    drawn where its own lane has come to.
    """
    partners = _find_partners(together)
    places: dict[LaneCall, float] = {}
    while waiting := [LaneCall(lane, place) for lane, walk in enumerate(walks) if (place := walk.go_to_call()) is not None]:
        ready = {call: partners.get(call, {call}) for call in waiting}
        whole = [calls for calls in ready.values() if calls <= set(waiting) and not calls & places.keys()]
        if not whole:
            # every lane waits for another: the one that has come least far goes on alone, or the walk never ends
            first = min(waiting, key=lambda call: walks[call.lane].at)
            partners.get(first, set()).discard(first)
            whole = [{first}]
        for calls in whole:
            at = max(walks[call.lane].at for call in calls) + 0.5
            for call in calls - places.keys():
                places[call] = at
                walks[call.lane].pass_call(at)
    return places


def _find_partners(together: Iterable[Sequence[LaneCall]]) -> dict[LaneCall, set[LaneCall]]:
    """Of each collective all that are drawn at its place, itself too."""
    found: dict[LaneCall, set[LaneCall]] = {}
    for calls in together:
        whole = set(itertools.chain(calls, *(found.get(call, ()) for call in calls)))
        for call in whole:
            found[call] = whole
    return found


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
    boxes: tuple[LaneBox, ...]
    bands: tuple[LaneBand, ...]


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


def draw_step_lanes(job: TracedJob) -> StepLanes:
    """The lanes of a job, with what its ranks began together drawn at one place."""
    rows = _lane_rows(job)
    lane_of = {number: at for at, (ranks, _) in enumerate(rows) for number in numbers_in(ranks)}
    met = find_meetings(job, every_group=len(job.ranks) <= MOST_RANKS)
    ends = [tuple(dict.fromkeys(LaneCall(lane_of[rank], at) for rank, at in each.parts if rank in lane_of)) for each in met]
    walks = [Walk(step) for _, step in rows]
    places = place_collectives(walks, ends)
    lanes = tuple(Lane(ranks, *walk.draw_lane()) for (ranks, _), walk in zip(rows, walks, strict=True))
    links = tuple(
        Link(tuple((call.lane, places[call]) for call in calls), each) for calls, each in zip(ends, met, strict=True) if calls
    )
    width = max((walk.at for walk in walks), default=0.0)
    return StepLanes(lanes, links, width, sum(walk.left_out for walk in walks), max(0, len(job.kinds) - len(rows)))


def _lane_rows(job: TracedJob) -> list[tuple[Runs, TracedStep]]:
    if len(job.ranks) <= MOST_RANKS:
        return [(((rank.number, rank.number),), job.kinds[rank.kind].step) for rank in job.ranks]
    return [(kind.ranks, kind.step) for kind in job.kinds[:MOST_LANES]]
