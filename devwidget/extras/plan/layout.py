"""Proposes where the blocks of a model go, for `place`: searches splits, and runs each on virtual GPUs before it is shown."""

from __future__ import annotations

import functools
import itertools
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import torch
from torch import nn

from devwidget.capture.step.batch import Arguments
from devwidget.extras.plan.changes import Changed
from devwidget.extras.plan.child_process import ask_child
from devwidget.extras.plan.layout_blocks import ModelBlock, Need, find_block_paths, measure_blocks, weight_bytes
from devwidget.extras.plan.make_plan import plan_step, read_step
from devwidget.extras.plan.placement import AskedPlacement, retry_with_lengths
from devwidget.extras.plan.records.answers import AutoProposal, BlockCost, Layout, PlacedGpu, Rejected
from devwidget.extras.plan.records.plan import DevicePlan, Plan
from devwidget.extras.plan.watcher import virtual_gpu
from devwidget.gpus.virtual_machine import parse_cluster
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.fields import ProcessLocal
from devwidget.records.schema.message import Message, in_row

# Runs of one kind of layout: each tells how far the estimate of a GPU was off, and the next counts with it.
MOST_TRIES = 8

# Times the memory, by the estimate as runs have corrected it: not run.
FAR_OFF = 1.25

# No fuller is full enough for a hop: the map of accelerate's "auto" spreads what one GPU has room for twice.
HALF_FULL = 0.5

# Of a GPU: shares that differ by less are alike, and not worth a hop either.
ALIKE = 0.001

Best = Callable[[Sequence[int]], list[int] | None]
"""Of the room of each GPU: the best layout of a kind that was not run yet."""


Rank = tuple[int, float]
"""Of a layout; less is better."""
GOOD: Rank = (0, 0.0)
FITS: Rank = (3, 0.0)


def _share_of(gpu: PlacedGpu | DevicePlan) -> float:
    return gpu.on_card / gpu.capacity


def rank_layout(gpus: Sequence[PlacedGpu | DevicePlan], most_full: float) -> Rank:
    """Rank a layout that was run: no fuller than it should be, by more than plans were off, fits; of others the least full."""
    fullest = max(map(_share_of, gpus))
    if fullest > 1:
        return FITS[0] + 1, fullest
    return 2 * (fullest > most_full) + any(gpu.fit == "fits by less" for gpu in gpus), 0.0


@dataclass
class PlacedStep:
    """A step whose blocks are to be placed.

    Attributes:
        model, inputs, asked: of the step, as for a plan.
        capacities: of the GPUs.
        most_full: the share of its fullest GPU that a layout should take at most, where it fits.
        rejected: what was run and does not fit.
    """

    model: nn.Module
    inputs: Arguments
    asked: dict[str, Any]
    capacities: Sequence[int]
    most_full: float = float("inf")
    rejected: list[Rejected] = field(default_factory=list)

    def plan_with(self, placement: AskedPlacement) -> Plan:
        """Plan the step in full; raise DevwidgetError if it fails there."""
        return plan_step(self.model, self.inputs, {**self.asked, "placement": placement}, Changed())

    def measure_need(self, paths: Sequence[str]) -> Need:
        """Measure what the blocks at these paths take."""
        return retry_with_lengths(functools.partial(measure_blocks, self.model, self.inputs, self.asked, paths))


@dataclass
class SplitSearch:
    """The search for one layout."""

    step: PlacedStep
    need: Need
    _plans: dict[tuple[int, ...], Plan | None] = field(default_factory=dict)
    _nearest: tuple[Rank, list[int], Plan] | None = None

    def find_split(self) -> tuple[list[int], Plan] | None:
        """Return the split with the fewest hops of those that rank first when they are run, and its plan; None if none runs."""
        for best in self._iterate_kinds():
            self._try_kind(best)
            if self._has_found(GOOD):
                break
        return self._nearest and self._nearest[1:]

    def _has_found(self, rank: Rank) -> bool:
        return self._nearest is not None and self._nearest[0] <= rank

    def _iterate_kinds(self) -> Iterator[Best]:
        """Yield assignments with more and more hops where there are few, else splits in order over more and more GPUs."""
        hops: dict[int, list[list[int]]] = {}
        for split in list_assignments(self.need.blocks, self.step.capacities):
            hops.setdefault(count_crossings(split, self.need.blocks)[0], []).append(split)
        for count in sorted(hops):
            yield functools.partial(self._pick_emptiest, hops[count])
        if hops:
            return
        for used in range(1, len(self.step.capacities) + 1):
            for home in range(min(used, 2)):
                yield functools.partial(self._pick_in_order, used, home)

    def _pick_emptiest(self, splits: Sequence[list[int]], room: Sequence[int]) -> list[int] | None:
        left = (split for split in splits if tuple(split) not in self._plans)
        return min(left, key=lambda split: _find_fullest_share(self.need, split, room), default=None)

    def _pick_in_order(self, used: int, last_home: int, room: Sequence[int]) -> list[int] | None:
        """Pick the best split with so many blocks at the end on the first GPU again; then a neighbour of the nearest."""
        split = find_best_split(self.need, room, used, last_home)
        if split is None:
            return None
        options = [split]
        if self._nearest is not None:
            options += neighbouring_splits(self._nearest[1], group_tied_blocks(self.need.blocks))
        for each in options:
            if tuple(each) not in self._plans:
                return each
        return None

    def _try_kind(self, best: Best) -> None:
        """Run what is best by the estimate, then what is best as runs have corrected the estimate."""
        room = list(self.step.capacities)
        for tries in range(MOST_TRIES):
            split = best(room)
            if split is None:
                return
            if why := self._find_reason_against(split):
                self.step.rejected.append(Rejected(describe_split(split), why))
                return
            # Once something fits, only what may well rank first is worth a run.
            worth = FAR_OFF
            if self._has_found(FITS):
                worth = min(self.step.most_full, 1.0)
            if (tries or worth < FAR_OFF) and _find_fullest_share(self.need, split, room) > worth:
                return
            self._plans[tuple(split)] = plan = self.run_split(split)
            if self._has_found(GOOD):
                return
            if plan is not None:
                room = [self._correct_room(index, split, plan) for index in range(len(room))]

    def _find_reason_against(self, split: list[int]) -> str:
        """Say why a run would tell nothing: the weights have no room, or all of it has none on one of several GPUs; else ""."""
        capacities, asked = self.step.capacities, self.step.asked
        for index, capacity in enumerate(capacities):
            weights = weight_bytes(self.need.part_of(split, index))
            if weights > capacity:
                share = f"{weights / capacity:.1%}"
                return Message("not run: the weights of GPU {index} are {share} of its memory", index=index, share=share)
        is_whole = len(set(split)) == 1 < len(capacities)
        held, capacity = self.need.count_least(self.need.blocks), capacities[split[0]]
        # A step of the user's own may let gradients go before all are there.
        if not is_whole or asked["loop"].is_own or held <= capacity:
            return ""
        facts = {"index": split[0], "share": f"{held / capacity:.1%}"}
        return Message("not run: weights, gradients and optimizer state of GPU {index} are {share} of its memory", **facts)

    def run_split(self, split: list[int]) -> Plan | None:
        """Run the step with each block on the GPU that is said; None if it fails there, and the reason is kept."""
        rejected = self.step.rejected
        try:
            plan = self.step.plan_with({block.path: index for block, index in zip(self.need.blocks, split, strict=True)})
        except DevwidgetError as error:
            rejected.append(Rejected(describe_split(split), error.what))
            return None
        rank = rank_layout(plan.devices, self.step.most_full)
        if rank != GOOD:
            fullest = max(plan.devices, key=_share_of)
            facts = {"device": fullest.device, "share": f"{_share_of(fullest):.1%}"}
            why = Message("{device} needs {share} of its memory", **facts)
            if plan.fits:
                why = Message("fits, and {device} needs {share} of its memory", **facts)
            rejected.append(Rejected(describe_split(split), why))
        if self._nearest is None or rank < self._nearest[0]:
            self._nearest = rank, split, plan
        return plan

    def _correct_room(self, index: int, split: list[int], plan: Plan) -> int:
        """Return what the estimate of a GPU may come to, by how far it was off."""
        estimated = self.need.estimate_peak(self.need.part_of(split, index))
        return self.step.capacities[index] - max(plan.devices[index].on_card - estimated, 0)


def describe_split(split: Sequence[int]) -> str:
    """Return a text such as `4 on 0, 3 on 1`."""
    return in_row(Message("{count} on {gpu}", count=len(list(group)), gpu=gpu) for gpu, group in groupby(split))


MOST_ASSIGNMENTS = 1 << 12
"""Of blocks to GPUs; where there are more, blocks are split in the order in which they run."""


def group_tied_blocks(blocks: Sequence[ModelBlock]) -> list[list[int]]:
    """Group blocks that go together, in their order: those that share weights, and a tensor with the next module."""
    groups: list[list[int]] = []
    for index, block in enumerate(blocks):
        follows_tensor = index > 0 and not blocks[index - 1].is_module
        tied, others = [index], []
        for group in groups:
            shares = any(block.tensors & blocks[other].tensors for other in group)
            if shares or (follows_tensor and index - 1 in group):
                tied += group
            else:
                others.append(group)
        groups = [*others, sorted(tied)]
    return sorted(groups)


def find_best_split(need: Need, room: Sequence[int], used: int, last_home: int = 0) -> list[int] | None:
    """The GPU of each block, over the first `used` GPUs, so that the fullest part is as little full as can be.

    Args:
        need: of the blocks.
        room: bytes of each GPU.
        used: GPUs, each with one group of blocks at least, in their order.
        last_home: so many groups at the end are on the first GPU again.

    Returns:
        None if there are fewer groups than GPUs.
    """
    groups = group_tied_blocks(need.blocks)
    chain = len(groups) - last_home
    if chain < used or (last_home and used < 2):
        return None

    @functools.cache
    def find_share(gpu: int, begin: int, end: int) -> float:
        if room[gpu] <= 0:
            return float("inf")
        part = list(itertools.chain(*groups[begin:end]))
        if gpu == 0:
            part += itertools.chain(*groups[chain:])
        return need.estimate_peak([need.blocks[index] for index in sorted(part)]) / room[gpu]

    ends = cut_chain(chain, used, find_share)
    if ends is None:
        return None
    places = [bisect_right(ends, number) % used for number in range(len(groups))]
    return assign_places(groups, places)


def cut_chain(length: int, parts: int, find_share: Callable[[int, int, int], float]) -> list[int] | None:
    """Return where each part of a chain ends so that the largest share is as small as can be; None if one is infinite.

    Args:
        length: of the chain, as many as there are parts or more.
        parts: how many there are, none of them empty.
        find_share: of a part, from where to where it is.
    """
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for part in range(parts):
        longer = {}
        for end in range(part + 1, length + 1):
            cuts = []
            for begin, (share, _) in best.items():
                if begin < end:
                    cuts.append((max(share, find_share(part, begin, end)), begin))
            share, begin = min(cuts)
            longer[end] = share, [*best[begin][1], end]
        best = longer
    share, ends = best[length]
    return ends if share < float("inf") else None


def neighbouring_splits(split: Sequence[int], groups: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Return the splits with one group of blocks at a border moved to the other side."""
    places = [split[group[0]] for group in groups]
    for index, (here, following) in enumerate(itertools.pairwise(places)):
        if here != following:
            yield assign_places(groups, [*places[:index], following, *places[index + 1 :]])
            yield assign_places(groups, [*places[: index + 1], here, *places[index + 2 :]])


def list_assignments(blocks: Sequence[ModelBlock], room: Sequence[int]) -> list[list[int]]:
    """List every way to put blocks on GPUs, tied ones on one, alike GPUs in turn; none above `MOST_ASSIGNMENTS`."""
    groups = group_tied_blocks(blocks)
    if len(room) ** len(groups) > MOST_ASSIGNMENTS:
        return []
    are_alike = len(set(room)) == 1
    found = []
    for places in itertools.product(range(len(room)), repeat=len(groups)):
        if not are_alike or list(dict.fromkeys(places)) == list(range(len(set(places)))):
            found.append(assign_places(groups, places))
    return found


def assign_places(groups: Sequence[Sequence[int]], places: Sequence[int]) -> list[int]:
    """Return the GPU of each block from the GPU of each group."""
    found: dict[int, int] = {}
    for group, gpu in zip(groups, places, strict=True):
        found |= dict.fromkeys(group, gpu)
    return [found[index] for index in sorted(found)]


def _find_fullest_share(need: Need, split: Sequence[int], room: Sequence[int]) -> float:
    if any(room[gpu] <= 0 for gpu in split):
        return float("inf")
    return max(need.estimate_peak(need.part_of(split, gpu)) / room[gpu] for gpu in set(split))


def count_crossings(places: Sequence[object], blocks: Sequence[ModelBlock | BlockCost]) -> tuple[int, int]:
    """Count the copies of activations to another GPU, and their bytes; the output goes back to the first."""
    running = [(at, block.passed) for at, block in zip(places, blocks, strict=True) if block.passed]
    count = total = 0
    for (here, size), (there, _) in zip(running, [*running[1:], *running[:1]], strict=True):
        if here != there:
            count, total = count + 1, total + size
    return count, total


MOST_SHOWN = 8
"""Rejected layouts in the answer, the last ones."""


def make_layout(model: nn.Module, batch: Any, target: Any, asked: dict[str, Any], options: dict[str, Any]) -> Layout:
    """See `devwidget.place`; `asked` are its arguments, `options` the arguments of the loop."""
    inputs = read_step(model, batch, target, asked, options)
    found = ask_child(propose_layout, model, inputs, asked)
    return replace(found, _page=ProcessLocal(_show_page))


def _show_page(layout: Layout) -> None:
    from devwidget.extras.plan.screen.layout_panel import LayoutWidget  # late: a layout needs no widgets

    LayoutWidget.show_live(layout)


def propose_layout(model: nn.Module, inputs: Arguments, asked: dict[str, Any]) -> Layout:
    """Propose a layout, and describe accelerate's; see `devwidget.place`. Raise DevwidgetError if none can be run."""
    capacities = parse_cluster(asked["gpus"], asked["memory"], False, card=asked["card"]).memory_bytes
    step = PlacedStep(model, inputs, asked, capacities)
    if len(capacities) == 1:
        return _search_layout(step, functools.partial(_plan_auto, step))
    auto = _plan_auto(step)
    step.most_full = _find_most_full(auto)
    layout = _search_layout(step, lambda: auto)
    return replace(layout, auto=_describe_auto(layout, auto))


def _plan_auto(step: PlacedStep) -> Plan | DevwidgetError:
    """Plan the map that accelerate proposes. You did not ask for it, so its log output is dropped."""
    logger = logging.getLogger("accelerate.utils.modeling")
    before, logger.disabled = logger.disabled, True
    try:
        return step.plan_with("auto")
    except DevwidgetError as error:
        return error
    finally:
        logger.disabled = before


def _describe_auto(layout: Layout, auto: Plan | DevwidgetError) -> AutoProposal:
    if isinstance(auto, DevwidgetError):
        return AutoProposal(False, problem=auto.what)
    places, crossings = _place_blocks(layout, dict(auto.device_map)), (0, 0)
    if places:
        crossings = count_crossings(places, layout.blocks)
    return AutoProposal(auto.fits, tuple(map(_describe_gpu, auto.devices)), places, *crossings)


def _place_blocks(layout: Layout, device_map: dict[str, str]) -> tuple[DeviceId, ...]:
    """Return where each block is in a map; nothing where the map has its parts on several devices, or off the GPUs."""
    gpus = {str(gpu.device): gpu.device for gpu in layout.devices}
    places = []
    for block in layout.blocks:
        found = _find_devices(block.path, device_map)
        if len(found) != 1 or not found <= gpus.keys():
            return ()
        places.append(gpus[found.pop()])
    return tuple(places)


def _find_devices(block: str, device_map: dict[str, str]) -> set[str]:
    """Return the device of the nearest entry around a block; if there is none, the devices of the entries inside it."""
    around = [path for path in device_map if not path or f"{block}.".startswith(f"{path}.")]
    if around:
        return {device_map[max(around, key=len)]}
    return {device for path, device in device_map.items() if path.startswith(f"{block}.")}


def _describe_gpu(device: DevicePlan) -> PlacedGpu:
    return PlacedGpu(device.device, device.on_card, device.capacity, device.fit == "fits by less")


def _search_layout(step: PlacedStep, plan_auto: Callable[[], Plan | DevwidgetError]) -> Layout:
    found: list[Layout] = []
    for paths in dict.fromkeys(tuple(find_block_paths(step.model, finest)) for finest in (True, False)):
        search = SplitSearch(step, step.measure_need(paths))
        nearest = search.find_split()
        if nearest is not None:
            found.append(_describe_layout(search, *nearest))
        if found and rank_layout(found[-1].devices, step.most_full) == GOOD:
            return found[-1]
    found += _take_proposal(step, plan_auto())
    if not found:
        why: str = Message("there are fewer blocks than GPUs")
        if step.rejected:
            why = step.rejected[-1].why
        facts = {"kind": type(step.model).__name__, "count": len(paths)}
        raise DevwidgetError(Message("no split of the {count} blocks of {kind} fits", **facts), why=why)
    return min(found, key=lambda layout: (rank_layout(layout.devices, step.most_full), layout.hops))


def _find_most_full(auto: Plan | DevwidgetError) -> float:
    """Return the share that accelerate's map takes of its fullest GPU, where it fits on GPUs alone; half is never too full."""
    if isinstance(auto, DevwidgetError) or not auto.fits or not all(virtual_gpu(0).type in at for _, at in auto.device_map):
        return float("inf")
    return max(HALF_FULL, max(map(_share_of, auto.devices)) + ALIKE)


def _take_proposal(step: PlacedStep, auto: Plan | DevwidgetError) -> Iterator[Layout]:
    """Yield the map that accelerate proposes: it splits where no block of ours ends."""
    rejected = Message("placement: {placement}", placement="auto")
    if isinstance(auto, DevwidgetError):
        step.rejected.append(Rejected(rejected, auto.what))
        return
    places = {path: torch.device(device) for path, device in auto.device_map}
    if any(place.type != virtual_gpu(0).type for place in places.values()):
        return
    try:
        search = SplitSearch(step, step.measure_need(tuple(places)))
    except DevwidgetError as error:
        step.rejected.append(Rejected(rejected, error.what))
        return
    yield _describe_layout(search, [places[block.path].index or 0 for block in search.need.blocks], auto)


def _describe_layout(search: SplitSearch, split: Sequence[int], plan: Plan) -> Layout:
    blocks, kind = search.need.blocks, plan.devices[0].device.kind
    costs = []
    for block, index in zip(blocks, split, strict=True):
        sizes = block.weights, block.kept, block.beyond, block.passed
        costs.append(BlockCost(block.path, DeviceId(kind, index), *sizes, block.dtype, block.shape))
    gpus = tuple(map(_describe_gpu, plan.devices))
    others = search.step.rejected
    if plan.fits:
        others = [each for each in others if each.what != describe_split(split)]
    moved, tied, shown = count_crossings(split, blocks), _find_ties(blocks), tuple(others[-MOST_SHOWN:])
    return Layout(type(search.step.model).__name__, plan.fits, tuple(costs), gpus, *moved, tied, shown)


def _find_ties(blocks: Sequence[ModelBlock]) -> tuple[tuple[str, ...], ...]:
    by_storage: dict[int, list[str]] = {}
    for block in blocks:
        for storage in block.tensors:
            by_storage.setdefault(storage, []).append(block.path)
    return tuple(sorted({tuple(paths) for paths in by_storage.values() if len(paths) > 1}))
