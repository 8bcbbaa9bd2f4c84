"""Plan: the peak bytes that one step is predicted to need on each GPU, and what does not fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from devwidget.records.answers import Changes, Generation, LargestBatch
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.fields import ProcessLocal, Size, process_local
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import Record
from devwidget.records.site import Site
from devwidget.records.trace import Phase

ALLOCATED_BAND, RESERVED_BAND = 0.02, 0.05
"""How far a prediction may be off, as a share: the worst of what docs/evidence.md holds against real cards, rounded up:
1.9 % of what is allocated; what is reserved varies more from run to run than the 2 % seen there."""
CONTEXT_BAND = 0.3
"""The same of a context: those that people have published for one kind of card differ by so much, with driver and libraries."""


def band(size: float, share: float) -> tuple[int, int]:
    """The least and the most that a predicted size stands for."""
    return int(size * (1 - share)), int(size * (1 + share))


@dataclass(frozen=True, slots=True)
class PlanMoment:
    """When something happened in the predicted step.

    Attributes:
        phase: part of the step.
        module: path of the innermost module running, "" for the root; None outside the model, as in backward.
        site: the line of the model or the loss; None where none runs.
    """

    phase: Phase
    module: str | None
    site: Site | None = None


@dataclass(frozen=True, slots=True)
class PlannedLoop:
    """The loop around the step.

    Attributes:
        name: `step`, whose output dies with the function that makes the step; `plain`, whose output lives into the next
            forward; `trainer`, whose output dies before backward; or what a loop of the user's is called.
        is_own: whether it is the user's.
        accumulate: batches whose gradients are added up for one step of the optimizer.
        autocast: the dtype that forward and loss compute in; "" for what the tensors have.
        grad_scaler: whether torch's `GradScaler` scales the loss.
        zero_grad: `none` or `zero`; "" for what the optimizer does by itself.
        checkpointing: `checkpointing` or `reentrant checkpointing` of the blocks; "" for what the model does by itself.
    """

    name: str = "step"
    is_own: bool = False
    accumulate: Size = 1
    autocast: str = ""
    grad_scaler: bool = False
    zero_grad: str = ""
    checkpointing: str = ""


@dataclass(frozen=True, slots=True)
class LoopPeak:
    """What another loop around the same step takes; it was run.

    Attributes:
        name: as of `PlannedLoop`.
        peak: the most that one GPU has allocated, in bytes.
        fits: whether every GPU has room.
    """

    name: str
    peak: Size
    fits: bool


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """One GPU of a plan, in bytes. The four parts add up to the peak.

    Attributes:
        device: which GPU.
        capacity: bytes that it has.
        peak: the most that is predicted to be allocated at once.
        reserved: the most that the caching allocator is predicted to hold, `peak` included; 0 where no card is named.
        context: what CUDA takes on the card besides; 0 where no card is named.
        weights: bytes of parameters and buffers at the peak.
        gradients: bytes of gradients at the peak.
        optimizer: bytes of optimizer state at the peak.
        activations: the rest at the peak: kept for backward, inputs, outputs, replicas, temporaries.
        peak_at: when the peak is reached; None for a GPU that is not used.
        tips_over: when the capacity is exceeded first; None if the step fits.
    """

    device: DeviceId
    capacity: Size
    peak: Size
    weights: Size = 0
    gradients: Size = 0
    optimizer: Size = 0
    activations: Size = 0
    peak_at: PlanMoment | None = None
    tips_over: PlanMoment | None = None
    reserved: Size = 0
    context: Size = 0

    @property
    def cached(self) -> int:
        """What the allocator holds beyond the peak: rests of segments, and segments that were in use at another time."""
        return max(self.reserved - self.peak, 0)

    @property
    def on_card(self) -> int:
        """The most that the process takes of the card, as far as it is predicted."""
        return self.peak + self.cached + self.context

    @property
    def peak_band(self) -> tuple[int, int]:
        """The least and the most that the peak stands for; see `ALLOCATED_BAND`."""
        return band(self.peak, ALLOCATED_BAND)

    @property
    def reserved_band(self) -> tuple[int, int]:
        """The least and the most that what is reserved stands for; see `RESERVED_BAND`."""
        return band(self.reserved, RESERVED_BAND)

    @property
    def on_card_band(self) -> tuple[int, int]:
        """The least and the most that is taken of the card, context included; without a card `peak_band`."""
        if not self.reserved:
            return self.peak_band
        (least, most), (less, more) = self.reserved_band, band(self.context, CONTEXT_BAND)
        return least + less, most + more

    @property
    def fits(self) -> bool:
        """Whether all of it is within the capacity."""
        return self.on_card <= self.capacity

    @property
    def is_close(self) -> bool:
        """Whether the capacity lies within what the prediction may be off."""
        least, most = self.on_card_band
        return least <= self.capacity <= most


class Questions(Protocol):
    """What can be asked of a plan as long as its model is there; `planning` answers."""

    def largest_batch(self) -> LargestBatch:
        """See `Plan.largest_batch`."""

    def cheapest_change(self) -> Changes:
        """See `Plan.cheapest_change`."""

    def generation(self, new_tokens: int, cache: str) -> Generation:
        """See `Plan.generation`."""

    def sliders(self) -> Any:
        """See `Plan.sliders`."""


@dataclass(frozen=True, slots=True)
class Plan(Record):
    """Predicted memory of one step.

    Attributes:
        model: class of the model.
        card: the kind of card that was asked for; "" for GPUs with a capacity and nothing else.
        placement: `as is`, `data parallel`, `auto` or `device map`.
        phases: the parts of the step that were predicted.
        devices: one entry per GPU, in order.
        device_map: module path and device, for placements with a map; `auto` proposes it.
        guesses: where the step went on by a choice among numbers that a plan does not know, such as the expert of each
            token; such choices are taken to be spread evenly.
        loop: the loop around the step.
        other_loops: what others would take, where none was asked for.
    """

    model: str
    placement: str
    phases: tuple[Phase, ...]
    devices: tuple[DevicePlan, ...]
    device_map: tuple[tuple[str, str], ...] = ()
    guesses: tuple[PlanMoment, ...] = ()
    card: str = ""
    loop: PlannedLoop = PlannedLoop()
    other_loops: tuple[LoopPeak, ...] = ()
    _questions: ProcessLocal[Questions] = process_local()

    @property
    def fits(self) -> bool:
        """Whether every GPU has room for its peak."""
        return all(device.fits for device in self.devices)

    def largest_batch(self) -> LargestBatch:
        """The largest batch whose step fits: a few plans are run, a line is fitted, and the answer is planned itself.

        Raises:
            DevwidgetError: for a plan that was loaded, whose model is not here; or if there is no batch to be changed.
        """
        return self._find_questions().largest_batch()

    def cheapest_change(self) -> Changes:
        """What would make the step smaller, each change planned in full: the cheapest that fits first.

        Raises:
            DevwidgetError: for a plan that was loaded, whose model is not here.
        """
        return self._find_questions().cheapest_change()

    def generation(self, new_tokens: int, cache: Literal["dynamic", "static"] = "dynamic") -> Generation:
        """What the model takes while it writes so many tokens more than the batch has, with a cache of keys and values.

        Args:
            new_tokens: that are written.
            cache: "dynamic" grows with each token; "static" is there for all of them from the start, as transformers'
                `cache_implementation="static"` makes it.

        Raises:
            DevwidgetError: for a plan that was loaded, whose model is not here; or for a model without such a cache.
        """
        return self._find_questions().generation(new_tokens, cache)

    def sliders(self) -> Any:
        """A widget with sliders for the batch, the length of texts and the memory of each GPU, which answer at once.

        Some plans are run for it; between them is told what a fit through them says, and how far that is off.

        Raises:
            DevwidgetError: for a plan that was loaded, whose model is not here; or if there is no batch to be changed.
        """
        return self._find_questions().sliders()

    def _find_questions(self) -> Questions:
        if self._questions.value is None:
            raise DevwidgetError(
                Message("this plan was loaded or made by hand: its model is not here"),
                instead=Message("ask what devwidget.plan(...) returns"),
            )
        return self._questions.value


def may_be_asked(plan: Plan, questions: Questions) -> Plan:
    """The plan, as one that answers questions in this process; its model is kept as long as it or a copy of it is."""
    return replace(plan, _questions=ProcessLocal(questions))
