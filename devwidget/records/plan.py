"""Plan: the peak bytes that one step is predicted to need on each GPU, and what does not fit."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.records.device import DeviceId
from devwidget.records.schema.bounds import Size
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
    """

    phase: Phase
    module: str | None
    site: Site | None = None


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
    def fits(self) -> bool:
        """Whether all of it is within the capacity."""
        return self.on_card <= self.capacity


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
    """

    model: str
    placement: str
    phases: tuple[Phase, ...]
    devices: tuple[DevicePlan, ...]
    device_map: tuple[tuple[str, str], ...] = ()
    guesses: tuple[PlanMoment, ...] = ()
    card: str = ""

    @property
    def fits(self) -> bool:
        """Whether every GPU has room for its peak."""
        return all(device.fits for device in self.devices)
