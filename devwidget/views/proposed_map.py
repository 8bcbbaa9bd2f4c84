"""The map of a layout that is only proposed: the same picture as that of a model that lives there."""

from __future__ import annotations

from devwidget.records.answers.layout import BlockCost, Layout
from devwidget.records.device import DeviceId
from devwidget.records.trace import Move
from devwidget.views.device_map import Block, Crossing, DeviceMap, joined_blocks
from devwidget.views.placement import Placement, device_order


def proposed_map(layout: Layout, table: Placement) -> DeviceMap:
    """Blocks in the order in which they run, and what they pass on; the way back of the output is among it.

    Args:
        table: of the model, for the classes of its modules; those that it does not have are drawn without.
    """
    classes = dict(zip(table.paths, table.classes, strict=True))
    blocks = joined_blocks(
        [
            Block((cost.path,), classes.get(cost.path, ""), cost.device, cost.weights, at)
            for at, cost in enumerate(layout.blocks)
        ]
    )
    devices = tuple(sorted({block.device for block in blocks}, key=device_order))
    return DeviceMap(devices, tuple(blocks), tuple(_crossings(layout, blocks)))


def _crossings(layout: Layout, blocks: list[Block]) -> list[Crossing]:
    """From block to block where the device changes, and from the last to the first."""
    ends = [max(at for at, cost in enumerate(layout.blocks) if cost.path in block.paths) for block in blocks]
    found = []
    for source, (block, end) in enumerate(zip(blocks, ends, strict=True)):
        target = (source + 1) % len(blocks)
        if blocks[target].device != block.device:
            found.append(Crossing(source, target, (_move(layout.blocks[end], blocks[target].device, blocks[target].path),)))
    return found


def _move(cost: BlockCost, target: DeviceId, module: str) -> Move:
    return Move(cost.device, target, cost.passed, cost.shape, cost.dtype, module, "forward", None, "hook")
