"""`place`: proposes where the blocks of a model go, and runs each proposal on virtual GPUs before it is shown."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
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
from devwidget.planning.layouts.blocks import Block, BlockWatcher
from devwidget.planning.layouts.splits import Need, beside, best_split, crossings, weights_of
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

MOST_TRIES = 4
"""Runs of one kind of split: each tells how far the estimate of a GPU was off, and the next split counts with it."""

MOST_SHOWN = 8
"""Rejected layouts in the answer, the last ones."""


def measure(model: nn.Module, inputs: Arguments, asked: dict[str, Any], lengths_stay: bool) -> Need:
    """What each block takes, from one step on one GPU of any size."""
    cluster = parse_cluster(1, UNLIMITED, False)
    watcher = Watcher(1)
    with placed_copy(model, "as is", cluster, watcher, Changed(prepare=_to_first)) as (copied, (account,)):
        blocks = BlockWatcher(account, settle)
        blocks.attach(copied.inner)
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

    def search(self) -> Layout:
        """The layout with the fewest hops that fits when it is run; if none does, the one that needs least.

        Raises:
            DevwidgetError: if no layout can be run.
        """
        for used, last_home in self._kinds():
            if (found := self._try(used, last_home)) is not None:
                return self._layout(*found)
        if self._nearest is None:
            why = self.rejected[-1].why if self.rejected else "there are fewer blocks than GPUs"
            raise DevwidgetError(f"{type(self.model).__name__} fits on no split of its {len(self.need.blocks)} blocks", why=why)
        _, split, plan = self._nearest
        return self._layout(split, plan)

    def _kinds(self) -> Iterator[tuple[int, int]]:
        """Numbers of GPUs, and of last blocks that are on the first GPU again, where the output has to go."""
        for used in range(1, len(self.capacities) + 1):
            yield used, 0
            if used > 1:
                yield used, 1

    def _try(self, used: int, last_home: int) -> tuple[list[int], Plan] | None:
        for split in self._splits(used, last_home):
            if tuple(split) in self._plans:
                continue
            self._plans[tuple(split)] = plan = None if self._weighs_too_much(split) else self._run(split)
            if plan is not None and plan.fits:
                return split, plan
        return None

    def _splits(self, used: int, last_home: int) -> Iterator[list[int]]:
        """The best by the estimate, the best by the estimate as runs have corrected it, and those beside the nearest."""
        room = list(self.capacities)
        for _ in range(MOST_TRIES):
            split = best_split(self.need, room, used, last_home)
            if split is None or tuple(split) in self._plans:
                break
            yield split
            if (plan := self._plans[tuple(split)]) is None:
                return
            room = [self._room(index, split, plan) for index in range(len(room))]
        if self._nearest is not None:
            yield from beside(self._nearest[1])

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
    """The layout of a step; see `devwidget.place`."""
    need = with_lengths(lambda lengths_stay: measure(model, inputs, asked, lengths_stay))
    return Proposals(model, inputs, asked, need, capacities).search()
