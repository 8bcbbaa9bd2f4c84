"""Proposes where the blocks of a model go, for `place`, and runs each proposal on virtual GPUs before it is shown."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from torch import nn

from devwidget.capture.step.batch import Arguments, make_arguments
from devwidget.capture.step.sources import kept_source
from devwidget.capture.validation import refuse_model
from devwidget.planning import refuse_plan
from devwidget.planning.child_process import ask_child
from devwidget.planning.layouts.blocks import ModelBlock, find_block_paths, measure_blocks
from devwidget.planning.layouts.splits import SplitSearch, count_crossings
from devwidget.planning.placement import retry_with_lengths
from devwidget.records.answers import BlockCost, Layout, PlacedGpu, Rejected
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError
from devwidget.records.plan import Plan
from devwidget.records.schema.message import Message
from devwidget.simulator.cluster import parse_cluster

MOST_SHOWN = 8
"""Rejected layouts in the answer, the last ones."""


def make_layout(model: nn.Module, batch: Any, target: Any, asked: dict[str, Any]) -> Layout:
    """See `devwidget.place`."""
    refuse_model(model)
    capacities = parse_cluster(asked["gpus"], asked["memory"], False, card=asked["card"]).memory_bytes
    refuse_plan(asked["optimizer"], {})
    with kept_source(batch):
        inputs = make_arguments(model, batch, target=target, has_loss=asked["loss_fn"] is not None)
    return ask_child(propose_layout, model, inputs, asked, capacities)


def propose_layout(model: nn.Module, inputs: Arguments, asked: dict[str, Any], capacities: Sequence[int]) -> Layout:
    """Propose a layout; see `devwidget.place`. Raise DevwidgetError if none can be run."""
    found: list[Layout] = []
    rejected: list[Rejected] = []
    for paths in dict.fromkeys(tuple(find_block_paths(model, finest)) for finest in (True, False)):
        need = retry_with_lengths(functools.partial(measure_blocks, model, inputs, asked, paths))
        nearest = SplitSearch(model, inputs, asked, need, capacities, rejected).find_split()
        found += [] if nearest is None else [_describe_layout(model, need.blocks, *nearest, rejected)]
        if found and found[-1].fits:
            return found[-1]
    if not found:
        why = rejected[-1].why if rejected else Message("there are fewer blocks than GPUs")
        raise DevwidgetError(
            Message("{kind} fits on no split of its {count} blocks", kind=type(model).__name__, count=len(paths)), why=why
        )
    return min(found, key=lambda layout: max(gpu.on_card / gpu.capacity for gpu in layout.devices))


def _describe_layout(
    model: nn.Module, blocks: Sequence[ModelBlock], split: Sequence[int], plan: Plan, rejected: Sequence[Rejected]
) -> Layout:
    hops, crossing = count_crossings(split, blocks)
    kind = plan.devices[0].device.kind
    costs = tuple(
        BlockCost(
            block.path, DeviceId(kind, index), block.weights, block.kept, block.beyond, block.passed, block.dtype, block.shape
        )
        for block, index in zip(blocks, split, strict=True)
    )
    gpus = tuple(PlacedGpu(device.device, device.on_card, device.capacity) for device in plan.devices)
    tied, shown = _find_ties(blocks), tuple(rejected[-MOST_SHOWN:])
    return Layout(type(model).__name__, plan.fits, costs, gpus, hops, crossing, tied, shown)


def _find_ties(blocks: Sequence[ModelBlock]) -> tuple[tuple[str, ...], ...]:
    """Return the paths of the blocks that share weights."""
    by_storage: dict[int, list[str]] = {}
    for block in blocks:
        for storage in block.tensors:
            by_storage.setdefault(storage, []).append(block.path)
    return tuple(sorted({tuple(paths) for paths in by_storage.values() if len(paths) > 1}))
