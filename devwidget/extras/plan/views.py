"""A layout as a picture of devices: the blocks where they would go, and what they pass on."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.plan.records.answers import BlockCost, Layout, PlacedGpu
from devwidget.records.device import DeviceId
from devwidget.records.trace import Move
from devwidget.views.blocks import Block, join_alike
from devwidget.views.devices import DeviceColumn, Picture, Sketch, Way, place_ends
from devwidget.views.placement import PlacementTable


def propose_picture(layout: Layout, table: PlacementTable) -> Picture:
    """Where the blocks of a model would go, and what they pass on; the way back of the output is among it.

    Args:
        table: of the model, for the classes of its modules; those that it does not have are drawn without.
    """
    classes = dict(zip(table.paths, table.classes, strict=True))
    costs = [
        Block((each.path,), classes.get(each.path, ""), each.device, each.weights, at) for at, each in enumerate(layout.blocks)
    ]
    sketch = Sketch()
    for block in join_alike(costs):
        sketch.add(block)
    for start, end, move in list(_proposed_moves(layout, sketch.blocks)):
        source, target = place_ends(sketch, start, end, [move], "")
        sketch.ways.append(Way(source, target, "copy", move.bytes, moves=(move,)))
    return sketch.finish([_proposed_column(each, layout) for each in layout.devices])


def _proposed_column(gpu: PlacedGpu, layout: Layout) -> DeviceColumn:
    """A GPU that is too small is filled to its end, and what does not fit is drawn above."""
    held = min(gpu.on_card, gpu.capacity)
    weights = min(sum(block.weights for block in layout.blocks if block.device == gpu.device), held)
    refused = gpu.on_card if gpu.on_card > gpu.capacity else 0
    return DeviceColumn(gpu.device, gpu.capacity, (("parameters", weights), ("running", held - weights)), refused, is_peak=True)


def _proposed_moves(layout: Layout, blocks: list[Block]) -> Iterator[tuple[int, object, Move]]:
    """From block to block where the device changes, and from the last to the device of the first."""
    ends = [max(at for at, cost in enumerate(layout.blocks) if cost.path in block.paths) for block in blocks]
    for source, (block, end) in enumerate(zip(blocks, ends, strict=True)):
        last = source + 1 == len(blocks)
        after = blocks[0 if last else source + 1]
        if after.device != block.device:
            yield source, after.device if last else source + 1, _proposed_move(layout.blocks[end], after.device, after.path)


def _proposed_move(cost: BlockCost, target: DeviceId, module: str) -> Move:
    return Move(cost.device, target, cost.passed, cost.shape, cost.dtype, module, "forward", None, "hook")
