"""Layout: which block of a model goes to which GPU, and what was seen when that was run."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.records.device import DeviceId
from devwidget.records.schema.bounds import Length, Size
from devwidget.records.schema.record import Record


@dataclass(frozen=True, slots=True)
class BlockCost:
    """One block, in bytes.

    Attributes:
        path: of the module.
        device: where it goes.
        weights: parameters and buffers.
        kept: what its forward leaves behind, such as what backward needs.
        beyond: what its forward takes besides while it runs.
        passed: its output.
        dtype: of the first tensor of that.
        shape: of the same.
    """

    path: str
    device: DeviceId
    weights: Size = 0
    kept: Size = 0
    beyond: Size = 0
    passed: Size = 0
    dtype: str = ""
    shape: tuple[Length, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacedGpu:
    """One GPU of a layout, as the plan of the whole step saw it.

    Attributes:
        device: which GPU.
        on_card: the most that is taken of it, in bytes.
        capacity: what it has, in bytes.
    """

    device: DeviceId
    on_card: Size
    capacity: Size


@dataclass(frozen=True, slots=True)
class Rejected:
    """A layout that was run, and does not fit.

    Attributes:
        what: how it divides the blocks, such as `4 on 0, 3 on 1`.
        why: in words.
    """

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Layout(Record):
    """Where the blocks of a model go.

    Attributes:
        model: class of the model.
        fits: whether its step, run on virtual GPUs, fits; of those that do not fit, the one that needs least is shown.
        blocks: in the order in which they run.
        devices: the GPUs, in order.
        hops: how often activations go to another GPU in one forward, the way back of the output included.
        crossing: bytes that do.
        ties: paths of blocks that share weights.
        rejected: layouts that were run before, in their order.
    """

    model: str
    fits: bool
    blocks: tuple[BlockCost, ...]
    devices: tuple[PlacedGpu, ...]
    hops: Size = 0
    crossing: Size = 0
    ties: tuple[tuple[str, ...], ...] = ()
    rejected: tuple[Rejected, ...] = ()

    @property
    def device_map(self) -> dict[str, int]:
        """As accelerate's `dispatch_model` and transformers' `from_pretrained` take it."""
        return {block.path: block.device.index or 0 for block in self.blocks}
