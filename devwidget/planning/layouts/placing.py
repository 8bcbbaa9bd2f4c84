"""`place`: proposes where the blocks of a model go, and runs each proposal on virtual GPUs before it is shown."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from torch import nn

from devwidget.capture.step.batch import Arguments, arguments
from devwidget.capture.validation import refuse_model
from devwidget.planning import plan_of
from devwidget.planning.batches import with_lengths
from devwidget.planning.changes import Changed
from devwidget.planning.child.process import ask
from devwidget.planning.gpus import gpu
from devwidget.planning.layouts.blocks import Block, BlockWatcher, paths_of_blocks
from devwidget.planning.layouts.splits import Need, assignments, beside, best_split, crossings, fullness, groups_of, weights_of
from devwidget.planning.placement import placed_copy
from devwidget.planning.refusals import refuse
from devwidget.planning.rehearsal import rehearse
from devwidget.planning.watcher import Watcher
from devwidget.records.answers.layout import BlockCost, Layout, PlacedGpu, Rejected
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError
from devwidget.records.plan import Plan
from devwidget.records.schema.message import Message
from devwidget.simulator.cluster import UNLIMITED, parse_cluster
from devwidget.simulator.devices.ledger_listeners import settle

MOST_TRIES = 8
"""Runs of one kind of layout: each tells how far the estimate of a GPU was off, and the next counts with it."""

FAR_OFF = 1.25
"""Times the memory, by the estimate as runs have corrected it: not run."""

MOST_SHOWN = 8
"""Rejected layouts in the answer, the last ones."""

Best = Callable[[Sequence[int]], list[int] | None]
"""Of the room of each GPU: the best layout of a kind that was not run yet."""


def measure(model: nn.Module, inputs: Arguments, asked: dict[str, Any], paths: Sequence[str], lengths_stay: bool) -> Need:
    """What each of these blocks takes, from one step on one GPU of any size."""
    cluster = parse_cluster(1, UNLIMITED, False)
    watcher = Watcher(1)
    with placed_copy(model, "as is", cluster, watcher, Changed(prepare=_to_first)) as (copied, (account,)):
        blocks = BlockWatcher(account, settle)
        blocks.attach(copied.inner, paths)
        step = model, copied, inputs, asked["loss_fn"], asked["optimizer"], watcher
        phases = rehearse(*step, after_forward=blocks.detach, lengths_stay=lengths_stay)
        device = watcher.device(0, account, sum(block.weights for block in blocks.blocks.values()))
    found, trains = blocks.in_order(), "backward" in phases
    trained = sum(block.trained for block in found)
    state = watcher.optimizer.get(0, 0) / max(trained, 1)
    plain = Need(found, trains, state)
    more, phase = device.peak - plain.of(found), device.peak_at.phase if device.peak_at else ""
    if phase == "optimizer":
        return Need(found, trains, state, step=max(more, 0) / max(trained, 1))
    return Need(found, trains, state, backward=max(more, 0) if phase in ("backward", "loss") else 0)


def _to_first(model: nn.Module) -> None:
    """All of it on one GPU, wherever its parts are."""
    model.to(gpu(0))


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

    def search(self) -> Layout | None:
        """The layout with the fewest hops that fits when it is run; if none does, the one that needs least.

        Returns:
            None if no layout can be run.
        """
        for best in self._kinds():
            if (found := self._try(best)) is not None:
                return self._layout(*found)
        return None if self._nearest is None else self._layout(*self._nearest[1:])

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

    def _layout(self, split: list[int], plan: Plan) -> Layout:
        hops, crossing = crossings(split, self.need.blocks)
        kind = plan.devices[0].device.kind
        blocks = tuple(
            BlockCost(
                block.path,
                DeviceId(kind, index),
                block.weights,
                block.kept,
                block.beyond,
                block.passed,
                block.dtype,
                block.shape,
            )
            for block, index in zip(self.need.blocks, split, strict=True)
        )
        gpus = tuple(PlacedGpu(device.device, device.on_card, device.capacity) for device in plan.devices)
        tied, rejected = ties(self.need.blocks), tuple(self.rejected[-MOST_SHOWN:])
        return Layout(type(self.model).__name__, plan.fits, blocks, gpus, hops, crossing, tied, rejected)


def words_of(split: Sequence[int]) -> str:
    """`4 on 0, 3 on 1`."""
    parts = (Message("{count} on {gpu}", count=len(list(group)), gpu=gpu) for gpu, group in groupby(split))
    return functools.reduce(lambda told, part: Message("{first}, {second}", first=told, second=part), parts)


def ties(blocks: Sequence[Block]) -> tuple[tuple[str, ...], ...]:
    """Paths of the blocks that share weights."""
    by_storage: dict[int, list[str]] = {}
    for block in blocks:
        for storage in block.tensors:
            by_storage.setdefault(storage, []).append(block.path)
    return tuple(sorted({tuple(paths) for paths in by_storage.values() if len(paths) > 1}))


def make_layout(model: nn.Module, batch: Any, target: Any, asked: dict[str, Any]) -> Layout:
    """See `devwidget.place`."""
    refuse_model(model)
    capacities = parse_cluster(asked["gpus"], asked["memory"], False, card=asked["card"]).memory_bytes
    refuse(asked["optimizer"], {})
    inputs = arguments(model, batch, target=target, has_loss=asked["loss_fn"] is not None)
    return ask(layout_of, model, inputs, asked, capacities)


def layout_of(model: nn.Module, inputs: Arguments, asked: dict[str, Any], capacities: Sequence[int]) -> Layout:
    """The layout of a step; see `devwidget.place`.

    Raises:
        DevwidgetError: if none can be run.
    """
    found: list[Layout] = []
    rejected: list[Rejected] = []
    for paths in dict.fromkeys(tuple(paths_of_blocks(model, finest)) for finest in (True, False)):
        need = with_lengths(functools.partial(measure, model, inputs, asked, paths))
        layout = Proposals(model, inputs, asked, need, capacities, rejected).search()
        if layout is not None and layout.fits:
            return layout
        found += [] if layout is None else [layout]
    if not found:
        why = rejected[-1].why if rejected else "there are fewer blocks than GPUs"
        raise DevwidgetError(f"{type(model).__name__} fits on no split of its {len(paths)} blocks", why=why)
    return min(found, key=lambda layout: max(gpu.on_card / gpu.capacity for gpu in layout.devices))
