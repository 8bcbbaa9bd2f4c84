"""The search for a split: proposed by the estimate, run on virtual GPUs, proposed again by what the runs have corrected."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from torch import nn

from devwidget.capture.step.batch import Arguments
from devwidget.planning import plan_of
from devwidget.planning.changes import Changed
from devwidget.planning.layouts.splits import Need, assignments, beside, best_split, crossings, fullness, groups_of, weights_of
from devwidget.records.answers.layout import Rejected
from devwidget.records.errors import DevwidgetError
from devwidget.records.plan import Plan
from devwidget.records.schema.message import Message

MOST_TRIES = 8
"""Runs of one kind of layout: each tells how far the estimate of a GPU was off, and the next counts with it."""

FAR_OFF = 1.25
"""Times the memory, by the estimate as runs have corrected it: not run."""

Best = Callable[[Sequence[int]], list[int] | None]
"""Of the room of each GPU: the best layout of a kind that was not run yet."""


@dataclass
class Proposals:
    """The search for one layout.

    Attributes:
        model, inputs, asked: of the step, as for a plan.
        need: of the blocks.
        capacities: of the GPUs.
        rejected: what was run and does not fit.
    """

    model: nn.Module
    inputs: Arguments
    asked: dict[str, Any]
    need: Need
    capacities: Sequence[int]
    rejected: list[Rejected] = field(default_factory=list)
    _plans: dict[tuple[int, ...], Plan | None] = field(default_factory=dict)
    _nearest: tuple[float, list[int], Plan] | None = None

    def search(self) -> tuple[list[int], Plan] | None:
        """The split with the fewest hops that fits when it is run, and its plan; if none does, the one that needs least.

        Returns:
            None if none can be run.
        """
        for best in self._kinds():
            if (found := self._try(best)) is not None:
                return found
        return self._nearest and self._nearest[1:]

    def _kinds(self) -> Iterator[Best]:
        """Assignments with more and more hops, where there are few; else splits in order over more and more GPUs."""
        hops: dict[int, list[list[int]]] = {}
        for split in assignments(self.need.blocks, self.capacities):
            hops.setdefault(crossings(split, self.need.blocks)[0], []).append(split)
        yield from (functools.partial(self._best_of, hops[count]) for count in sorted(hops))
        for used in range(1, len(self.capacities) + 1) if not hops else ():
            yield from (functools.partial(self._best_in_order, used, home) for home in range(min(used, 2)))

    def _best_of(self, splits: Sequence[list[int]], room: Sequence[int]) -> list[int] | None:
        left = (split for split in splits if tuple(split) not in self._plans)
        return min(left, key=lambda split: fullness(self.need, split, room), default=None)

    def _best_in_order(self, used: int, last_home: int, room: Sequence[int]) -> list[int] | None:
        """With so many blocks at the end on the first GPU again, where the output has to go; then one beside the nearest."""
        split = best_split(self.need, room, used, last_home)
        near = [] if self._nearest is None else beside(self._nearest[1], groups_of(self.need.blocks))
        left = (each for each in [split, *near] if each is not None and tuple(each) not in self._plans)
        return None if split is None else next(left, None)

    def _try(self, best: Best) -> tuple[list[int], Plan] | None:
        """Run what is best by the estimate, then by the estimate as runs have corrected it."""
        room = list(self.capacities)
        for tries in range(MOST_TRIES):
            if (split := best(room)) is None or self._weighs_too_much(split):
                return None
            if tries and fullness(self.need, split, room) > FAR_OFF:
                return None
            self._plans[tuple(split)] = plan = self._run(split)
            if plan is not None and plan.fits:
                return split, plan
            if plan is not None:
                room = [self._room(index, split, plan) for index in range(len(room))]
        return None

    def _weighs_too_much(self, split: list[int]) -> bool:
        """Whether a run would tell nothing: the weights alone have no room."""
        for index, capacity in enumerate(self.capacities):
            part = [block for block, at in zip(self.need.blocks, split, strict=True) if at == index]
            weights = weights_of(part)
            if weights > capacity:
                why = Message(
                    "not run: the weights of GPU {index} are {share} of what it has",
                    index=index,
                    share=f"{weights / capacity:.1%}",
                )
                self.rejected.append(Rejected(words_of(split), why))
                return True
        return False

    def _run(self, split: list[int]) -> Plan | None:
        paths = {block.path: index for block, index in zip(self.need.blocks, split, strict=True)}
        asked = {**self.asked, "placement": paths}
        try:
            plan = plan_of(self.model, self.inputs, asked, Changed())
        except DevwidgetError as error:
            self.rejected.append(Rejected(words_of(split), error.what))
            return None
        over = max(device.on_card / device.capacity for device in plan.devices)
        if not plan.fits:
            fullest = max(plan.devices, key=lambda device: device.on_card / device.capacity)
            share = f"{fullest.on_card / fullest.capacity:.1%}"
            why = Message("{device} takes {share} of what it has", device=fullest.device, share=share)
            self.rejected.append(Rejected(words_of(split), why))
        if self._nearest is None or over < self._nearest[0]:
            self._nearest = over, split, plan
        return plan

    def _room(self, index: int, split: list[int], plan: Plan) -> int:
        """What the estimate of a GPU may come to, by how far it was off."""
        estimated = self.need.of([block for block, at in zip(self.need.blocks, split, strict=True) if at == index])
        return self.capacities[index] - max(plan.devices[index].on_card - estimated, 0)


def words_of(split: Sequence[int]) -> str:
    """`4 on 0, 3 on 1`."""
    parts = (Message("{count} on {gpu}", count=len(list(group)), gpu=gpu) for gpu, group in groupby(split))
    return functools.reduce(lambda told, part: Message("{first}, {second}", first=told, second=part), parts)
