"""Blocks over GPUs: what each part would take, every assignment of few, and the best split of many in their order."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from devwidget.planning.layouts.blocks import Block

MOST_ASSIGNMENTS = 1 << 12
"""Of blocks to GPUs; where there are more, blocks are split in the order in which they run."""


@dataclass(frozen=True)
class Need:
    """What blocks take on one GPU, in bytes.

    Attributes:
        blocks: all of them, in the order in which they run.
        trains: whether there is a backward.
        state: bytes of optimizer state for a byte of weights that are trained.
        step: bytes that the optimizer's step takes besides, for the same.
        backward: bytes that backward takes besides while one block is in it.
    """

    blocks: Sequence[Block]
    trains: bool = False
    state: float = 0.0
    step: float = 0.0
    backward: int = 0

    def of(self, blocks: Sequence[Block]) -> int:
        """The peak of a GPU that has these."""
        weights, trained = weights_of(blocks), _trained(blocks)
        if not self.trains:
            return weights + max((block.kept + block.beyond for block in blocks), default=0)
        kept = most = 0
        late = trained
        for block in blocks:
            most = max(most, kept + block.kept + block.beyond)
            kept += block.kept
            most = max(most, kept + trained - late + self.backward)
            late -= block.trained
        return round(weights + self.state * trained + max(most, kept + self.backward, (1 + self.step) * trained))


def weights_of(blocks: Sequence[Block]) -> int:
    """Bytes of their weights; what is tied within them is there once."""
    return sum(block.weights for block in _untied(blocks))


def _trained(blocks: Sequence[Block]) -> int:
    return sum(block.trained for block in _untied(blocks))


def _untied(blocks: Sequence[Block]) -> Iterator[Block]:
    storages: set[int] = set()
    for block in blocks:
        if not block.tensors or not block.tensors <= storages:
            yield block
        storages |= block.tensors


def groups_of(blocks: Sequence[Block]) -> list[list[int]]:
    """Which blocks go together, in their order: those that share weights, and a tensor with the module after it."""
    groups: list[list[int]] = []
    for index, block in enumerate(blocks):
        tied = [group for group in groups if any(block.tensors & blocks[other].tensors for other in group)]
        if index and not blocks[index - 1].is_module:
            tied += [group for group in groups if index - 1 in group and group not in tied]
        groups = [group for group in groups if group not in tied]
        groups.append(sorted([index, *itertools.chain(*tied)]))
    return sorted(groups)


def best_split(need: Need, room: Sequence[int], used: int, last_home: int = 0) -> list[int] | None:
    """The GPU of each block, over the first `used` GPUs, so that the fullest part is as little full as can be.

    Args:
        need: of the blocks.
        room: bytes of each GPU.
        used: GPUs, each with one group of blocks at least, in their order.
        last_home: so many groups at the end are on the first GPU again.

    Returns:
        None if there are fewer groups than GPUs.
    """
    groups = groups_of(need.blocks)
    chain = len(groups) - last_home
    if chain < used or (last_home and used < 2):
        return None

    @functools.cache
    def part_full(gpu: int, begin: int, end: int) -> float:
        part = groups[begin:end] + (groups[chain:] if gpu == 0 else [])
        if room[gpu] <= 0:
            return float("inf")
        return need.of([need.blocks[index] for index in sorted(itertools.chain(*part))]) / room[gpu]

    nothing = [(float("inf"), list[int]()) for _ in range(chain)]
    best: list[list[tuple[float, list[int]]]] = [[(0.0, []), *nothing]]
    for gpu in range(used):
        row = [(float("inf"), list[int]())]
        for end in range(1, chain + 1):
            cuts = (
                (max(full, part_full(gpu, begin, end)), begin, ends)
                for begin, (full, ends) in enumerate(best[gpu][:end])
                if full < float("inf")
            )
            full, _, ends = min(cuts, default=(float("inf"), 0, []), key=lambda cut: cut[0])
            row.append((full, [*ends, end]))
        best.append(row)
    full, ends = best[used][chain]
    if full == float("inf"):
        return None
    return placed(groups, [next((gpu for gpu, end in enumerate(ends) if number < end), 0) for number in range(len(groups))])


def beside(split: Sequence[int], groups: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """The splits in which one group of blocks at a border is on the other side."""
    places = [split[group[0]] for group in groups]
    for index, (here, following) in enumerate(itertools.pairwise(places)):
        if here != following:
            yield placed(groups, [*places[:index], following, *places[index + 1 :]])
            yield placed(groups, [*places[: index + 1], here, *places[index + 2 :]])


def assignments(blocks: Sequence[Block], room: Sequence[int]) -> list[list[int]]:
    """Every GPU of each block, those that are tied on one; of GPUs that are alike none is left out before one that is used.

    Returns:
        Nothing where there would be more than `MOST_ASSIGNMENTS`.
    """
    groups = groups_of(blocks)
    if len(room) ** len(groups) > MOST_ASSIGNMENTS:
        return []
    alike = len(set(room)) == 1
    every = itertools.product(range(len(room)), repeat=len(groups))
    return [placed(groups, places) for places in every if not alike or _in_turn(places)]


def _in_turn(places: Sequence[int]) -> bool:
    return list(dict.fromkeys(places)) == list(range(len(set(places))))


def placed(groups: Sequence[Sequence[int]], places: Sequence[int]) -> list[int]:
    """The GPU of each block, of those of the groups."""
    return [gpu for _, gpu in sorted((index, gpu) for group, gpu in zip(groups, places, strict=True) for index in group)]


def fullness(need: Need, split: Sequence[int], room: Sequence[int]) -> float:
    """The share that is taken of the fullest GPU."""
    parts = [[block for block, at in zip(need.blocks, split, strict=True) if at == gpu] for gpu in range(len(room))]
    return max(need.of(part) / free if free > 0 else float("inf") for part, free in zip(parts, room, strict=True) if part)


def crossings(split: Sequence[int], blocks: Sequence[Block]) -> tuple[int, int]:
    """How often activations go to another GPU, and their bytes; at the end the output goes back to the first."""
    running = [(at, block.passed) for at, block in zip(split, blocks, strict=True) if block.passed]
    passed = [size for (here, size), (there, _) in zip(running, [*running[1:], *running[:1]], strict=True) if here != there]
    return len(passed), sum(passed)
