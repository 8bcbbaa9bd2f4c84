"""Plans for many ranks: what each kind of rank needs."""

from __future__ import annotations

from dataclasses import dataclass, field

from devwidget.extras.plan.records.plan import PlanMoment, PlannedLoop
from devwidget.records.runs import Runs
from devwidget.records.schema.fields import Size
from devwidget.records.schema.record import Record
from devwidget.records.trace import Phase


@dataclass(frozen=True, slots=True)
class PhasePeak:
    """The most that one part of the step holds, in bytes.

    Attributes:
        phase: part of the step.
        bytes: held at once in it.
    """

    phase: Phase
    bytes: Size


@dataclass(frozen=True, slots=True)
class RankPlan:
    """Ranks that hold shards of the same shapes, in bytes for each of them. The six parts add up to the peak.

    Attributes:
        ranks: which ones; the first was run.
        capacity: bytes that each GPU has.
        peak: the most that is allocated at once.
        parameters: local shards of parameters and buffers.
        gathered: at the peak, what is gathered of the shards of others for a module that runs, and buffers of such transfers.
        gradients: at the peak.
        optimizer: at the peak, state of the optimizer.
        activations: the rest at the peak.
        most_gathered: the most of `gathered` at any time.
        phases: peaks of the parts of the step.
        peak_at: when the peak is reached.
        without: how many parameters have no element on these ranks.
        buckets: at the peak, in which DDP adds up gradients over the ranks.
        reserved: the most that the caching allocator holds, `peak` included; 0 where no card is named.
        context: what CUDA takes on the card besides; 0 where no card is named.
    """

    ranks: Runs
    capacity: Size
    peak: Size
    parameters: Size = 0
    gathered: Size = 0
    gradients: Size = 0
    optimizer: Size = 0
    activations: Size = 0
    most_gathered: Size = 0
    phases: tuple[PhasePeak, ...] = ()
    peak_at: PlanMoment | None = None
    without: Size = 0
    buckets: Size = 0
    reserved: Size = 0
    context: Size = 0

    @property
    def on_card(self) -> int:
        """The most that the process is predicted to take of the card."""
        return max(self.peak, self.reserved) + self.context

    @property
    def fits(self) -> bool:
        """Whether all of it is within the capacity."""
        return self.on_card <= self.capacity


@dataclass(frozen=True, slots=True)
class ParallelPlan(Record):
    """Predicted memory of one step on every rank of a mesh.

    Attributes:
        model: class of the model.
        mesh: names and sizes of its dimensions, in order.
        parameters: how many tensors the parameters of the whole model are.
        ranks: one entry for each kind of rank, the largest peak first.
        ways: how the model was spread, such as `FSDP2`, judged by classes of torch.
        loop: what is around the step.
        card: the kind of card that was asked for; "" for GPUs with a capacity and nothing else.
    """

    model: str
    mesh: tuple[tuple[str, Size], ...]
    parameters: Size
    ranks: tuple[RankPlan, ...]
    ways: tuple[str, ...] = ()
    loop: PlannedLoop = field(default_factory=PlannedLoop)
    card: str = ""

    @property
    def fits(self) -> bool:
        """Whether every rank has room for its peak."""
        return all(each.fits for each in self.ranks)
