"""Splits of a chain of blocks over GPUs: what each part would take, and the best split by dynamic programming."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from devwidget.planning.layouts.blocks import Block


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


def best_split(need: Need, room: Sequence[int], used: int, last_home: int = 0) -> list[int] | None:
    """The GPU of each block, over the first `used` GPUs, so that the fullest part is as little full as can be.

    Args:
        need: of the blocks.
        room: bytes of each GPU.
        used: GPUs, each with one block at least, in their order.
        last_home: so many blocks at the end are on the first GPU again.

    Returns:
        None if there are fewer blocks than GPUs.
    """
    blocks = need.blocks
    chain = len(blocks) - last_home
    if chain < used or (last_home and used < 2):
        return None
    home = list(blocks[chain:])

    @functools.cache
    def fullness(gpu: int, begin: int, end: int) -> float:
        part = list(blocks[begin:end]) + (home if gpu == 0 else [])
        return need.of(part) / room[gpu] if room[gpu] > 0 else float("inf")

    nothing = [(float("inf"), list[int]()) for _ in range(chain)]
    best: list[list[tuple[float, list[int]]]] = [[(0.0, []), *nothing]]
    for gpu in range(used):
        row = [(float("inf"), list[int]())]
        for end in range(1, chain + 1):
            cuts = (
                (max(full, fullness(gpu, begin, end)), begin, ends)
                for begin, (full, ends) in enumerate(best[gpu][:end])
                if full < float("inf")
            )
            full, _, ends = min(cuts, default=(float("inf"), 0, []), key=lambda cut: cut[0])
            row.append((full, [*ends, end]))
        best.append(row)
    full, ends = best[used][chain]
    if full == float("inf"):
        return None
    split = [next(gpu for gpu, end in enumerate(ends) if index < end) for index in range(chain)]
    return split + [0] * last_home


def beside(split: Sequence[int]) -> Iterator[list[int]]:
    """The splits in which one block at a border is on the other side."""
    for index, (here, following) in enumerate(itertools.pairwise(split)):
        if here != following:
            yield [*split[:index], following, *split[index + 1 :]]
            yield [*split[: index + 1], here, *split[index + 2 :]]


def crossings(split: Sequence[int], blocks: Sequence[Block]) -> tuple[int, int]:
    """How often activations go to another GPU, and their bytes; at the end the output goes back to the first."""
    there = [*split, split[0]]
    passed = [blocks[index].passed for index in range(len(split)) if there[index] != there[index + 1]]
    return len(passed), sum(passed)
