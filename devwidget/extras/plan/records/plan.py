"""Plan: the peak bytes that one step is predicted to need on each GPU, and what does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from devwidget.extras.plan.evidence.compared import Fit, find_band, find_card_band, name_fit
from devwidget.extras.plan.records.answers import (
    Answered,
    Changes,
    Generation,
    LargestBatch,
    OnCards,
    Room,
    group_answers,
)
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError
from devwidget.records.loading.consistency import Wrong
from devwidget.records.loading.typed_reader import register_check
from devwidget.records.schema.fields import ProcessLocal, Size, process_local
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import Record
from devwidget.records.site import Site
from devwidget.records.trace import Phase


@dataclass(frozen=True, slots=True)
class PlanMoment:
    """When something happened in the predicted step.

    Attributes:
        phase: part of the step.
        module: path of the innermost module running, "" for the root; None outside the model, as in backward.
        site: the line of the model or the loss; None where none runs.
        is_earlier: it was in a step before the last one that was run, whose course is drawn.
    """

    phase: Phase
    module: str | None
    site: Site | None = None
    is_earlier: bool = False


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
class StepPoint:
    """A moment of the step at which something was allocated, in bytes.

    Attributes:
        phase: part of the step.
        held: all that is allocated.
        gradients: of it.
        optimizer: of it, state of the optimizer.
    """

    phase: Phase
    held: Size
    gradients: Size = 0
    optimizer: Size = 0


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
        course: the last step that was run, in its order; of many moments that lie together the fullest.
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
    course: tuple[StepPoint, ...] = ()

    @property
    def cached(self) -> int:
        """What the allocator holds beyond the peak: rests of segments, and segments that were in use at another time."""
        return max(self.reserved - self.peak, 0)

    @property
    def on_card(self) -> int:
        """The most that the process is predicted to take of the card."""
        return self.peak + self.cached + self.context

    @property
    def on_card_band(self) -> tuple[int, int]:
        """The least and the most that is taken, as far as plans were off on real cards; of a card, context included."""
        if self.reserved:
            return find_card_band(self.reserved, self.context)
        return find_band("allocated").around(self.peak)

    @property
    def fits(self) -> bool:
        """Whether all of it is within the capacity."""
        return self.on_card <= self.capacity

    @property
    def is_close(self) -> bool:
        """Whether the capacity lies within what the prediction may be off."""
        least, most = self.on_card_band
        return least <= self.capacity < most

    @property
    def fit(self) -> Fit:
        """Whether it fits by more than plans were off on real cards, by less, or not."""
        return name_fit(self.fits, self.is_close)


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
        asked_before: what was asked of a plan before it was saved; see `answers`.
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
    asked_before: Answered = field(default=Answered(), compare=False)
    _questions: ProcessLocal[Any] = process_local()

    @property
    def fits(self) -> bool:
        """Whether every GPU has room for its peak."""
        return all(device.fits for device in self.devices)

    @property
    def fit(self) -> Fit:
        """Whether every GPU has room by more than plans were off on real cards, one by less, or one has none."""
        return name_fit(self.fits, any(device.fit == "fits by less" for device in self.devices))

    @property
    def tightest(self) -> DevicePlan:
        """The GPU with the least room left."""
        return min(self.devices, key=lambda device: device.capacity - device.on_card)

    @property
    def room(self) -> Room:
        """What is taken of that GPU, and the answer for all of them."""
        gpu = self.tightest
        return Room(gpu.capacity, gpu.peak, self.fit, gpu.cached, gpu.context)

    @property
    def answers(self) -> tuple[Any, ...]:
        """What was asked of it so far, the last of each kind; its page shows them, and they are saved with it."""
        questions = questions_of(self)
        if questions is None:
            return self.asked_before.all
        return tuple(questions.answers.values())

    def save(self, path: str | Path) -> Path:
        """Write it as JSON, with what was asked of it; `devwidget.load` reads it back, on any machine.

        Raises:
            UnwritableError: if the file cannot be written.
        """
        return Record.save(replace(self, asked_before=group_answers(self.answers), _questions=ProcessLocal()), path)

    def _ipython_display_(self) -> None:
        """Show the page with its sliders in a running notebook; a static page is saved with it for viewers without a kernel."""
        questions = questions_of(self)
        if questions is None:
            raise NotImplementedError("a plan without its model is shown as it was saved")
        questions.show_live()

    def to_markdown(self) -> str:
        """The report as Markdown, to be pasted."""
        return str(self._show_as("markdown"))

    def largest_batch(self) -> LargestBatch:
        """The largest batch whose step fits: a few plans are run, a line is fitted, and the answer is planned itself.

        Raises:
            DevwidgetError: for a plan that was loaded, whose model is not here; or if there is no batch to be changed.
        """
        found: LargestBatch = self._find_questions().ask("batch")
        return found

    def cheapest_change(self) -> Changes:
        """What would make the step smaller, each change planned in full: the cheapest that fits first.

        Raises:
            DevwidgetError: for a plan that was loaded, whose model is not here.
        """
        found: Changes = self._find_questions().ask("changes")
        return found

    def generation(self, new_tokens: int, cache: Literal["dynamic", "static"] = "dynamic", num_beams: int = 1) -> Generation:
        """What the model takes while it writes so many tokens more than the batch has, with a cache of keys and values.

        Args:
            new_tokens: that are written.
            cache: "dynamic" grows with each token; "static" is there for all of them from the start, as transformers'
                `cache_implementation="static"` makes it.
            num_beams: as `generate` takes it: each text is read and written so often.

        Raises:
            DevwidgetError: for a plan that was loaded, whose model is not here; or for a model without such a cache.
        """
        found: Generation = self._find_questions().generation(new_tokens, cache, num_beams)
        return found

    def on_cards(self, *cards: str, also: Sequence[Literal["LoRA", "inference"]] = ()) -> OnCards:
        """The same step on other cards, each planned in full; without names on all that are known.

        Args:
            cards: names of kinds, as for `devwidget.plan`.
            also: what else to plan on each. "LoRA" trains adapters on the frozen layers of attention in place of the
                weights, "inference" is one forward. What does not fit then is planned with changes too.

        Raises:
            DevwidgetError: for a plan that was loaded, whose model is not here; for a card that is not known; or for LoRA
                of a step that trains nothing.
        """
        found: OnCards = self._find_questions().ask("cards", cards, also)
        return found

    def sliders(self) -> Any:
        """The page of the plan, with sizes around it planned before it is there.

        Raises:
            DevwidgetError: for a plan that was loaded, whose model is not here; or if there is no batch to be changed.
        """
        return self._find_questions().sliders()

    def _find_questions(self) -> Any:
        questions = questions_of(self)
        if questions is None:
            raise DevwidgetError(
                Message("this plan was loaded or made by hand: its model is not here"),
                instead=Message("ask what devwidget.plan(...) returns"),
            )
        return questions


def may_be_asked(plan: Plan, questions: Any) -> Plan:
    """The plan, as one that answers questions in this process by a `WhatIf`, which is kept as long as it or a copy of it is."""
    return replace(plan, _questions=ProcessLocal(questions))


def questions_of(plan: Plan) -> Any:
    """The `WhatIf` of a plan in this process; None for one that was loaded."""
    return plan._questions.value


@register_check(Plan)
def _check_devices(plan: Plan) -> Wrong:
    if not plan.devices:
        yield "devices", Message("one GPU or more")
