"""What to change about a step that found no room, with what was measured when it asked; each only where it applies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from devwidget.language.speaking import say
from devwidget.records.memory_curve import HELD, MemoryCurve, MemoryPoint, Refusal
from devwidget.records.trace import Trace
from devwidget.report.advice.parallel_advice import Advice
from devwidget.report.style.units import counted, format_bytes

_ROUNDED = 0.99
"""Of a smaller batch: blocks are rounded up, so that memory shrinks a little less than the batch."""
_WITH_BATCH = ("forward", "loss", "backward")
"""Phases in which memory grows with the batch."""


@dataclass(frozen=True, slots=True)
class _Full:
    """A device that had no room.

    Attributes:
        refused: what did not fit.
        live: what was in use then.
        room: bytes that this process can have there.
        samples: of the batch, 0 unknown.
        replicas: which share it.
        devices: how many there are.
        card: how much each has, for `plan`.
    """

    refused: Refusal
    live: MemoryPoint
    device: str
    room: int
    samples: int
    replicas: int
    devices: int
    card: str

    @property
    def fixed(self) -> int:
        """Bytes that are the same whatever the batch."""
        return sum(getattr(self.live, role) for role in (*HELD, "foreign"))

    @property
    def growing(self) -> int:
        """Bytes that a batch, and what is computed from it, take."""
        return self.live.allocated - self.fixed

    @property
    def fitting(self) -> float:
        """The part of the batch with which what was asked for would have fitted, as far as memory grows with the batch."""
        asked, room = self.refused.bytes, self.room - self.fixed
        if self.refused.phase == "backward":  # it may be a gradient, which is as large for one sample
            return _ROUNDED * (room - asked) / max(self.growing, 1)
        return _ROUNDED * room / (self.growing + asked)

    @property
    def fitting_samples(self) -> int:
        """The same in samples, cut evenly."""
        size = int(self.fitting * self.samples)
        return size - size % self.replicas if size > self.replicas else size

    @property
    def missing(self) -> int:
        """Bytes; 0 if there was room, in pieces."""
        return max(0, self.live.allocated + self.refused.bytes - self.room)


def memory_advice(trace: Trace) -> tuple[Advice, ...]:
    """All that applies to the allocation that was farthest from fitting: replicas may all have found no room."""
    full = [_full(curve, refused, trace) for curve in trace.memory for refused in curve.refused if refused.live is not None]
    if not full:
        return ()
    worst = min(full, key=lambda each: each.fitting)
    return tuple(each for look in _LOOKS for each in look(worst))


def _full(curve: MemoryCurve, refused: Refusal, trace: Trace) -> _Full:
    assert refused.live is not None
    cut = len({replica.number for replica in trace.replicas}) or 1
    room, card = curve.total - curve.end.others, format_bytes(curve.total).replace(" ", "")
    return _Full(refused, refused.live, str(curve.device), room, trace.samples, cut, len(trace.memory), card)


def _left_gradients(full: _Full) -> Iterator[Advice]:
    left = full.live.gradients
    if left and full.refused.phase in ("forward", "loss"):
        text = say(
            "{size} of gradients of an earlier step were still there. Unless you add them up on purpose, let go of them before"
            " the next forward:",
            size=format_bytes(left),
        )
        yield Advice("gradients", text, "optimizer.zero_grad(set_to_none=True)")


def _smaller_batch(full: _Full) -> Iterator[Advice]:
    if full.refused.phase not in _WITH_BATCH or not full.growing or not full.missing:
        return
    takes = say(
        "The batch and what was computed from it took {took} and asked for {asked} more.",
        took=format_bytes(full.growing),
        asked=format_bytes(full.refused.bytes),
    )
    if (full.fitting_samples if full.samples else full.fitting) <= 0:
        none = say("No batch is small enough: {size} do not depend on it.", size=format_bytes(full.fixed))
        yield Advice("batch", say("{first} {second}", first=takes, second=none))
        return
    most = f"{100 * full.fitting:.0f} %"
    if full.samples:
        most = say("{fitting} of the {samples}", fitting=f"{full.fitting_samples:,}", samples=counted(full.samples, "sample"))
    smaller = say(
        "As far as that grows with the batch, {most} get past this line; what follows takes more. Whether the whole step fits"
        " with a smaller batch is told without running it by",
        most=most,
    )
    text = say("{first} {second}", first=takes, second=smaller)
    yield Advice(
        "batch", text, f'print(devwidget.plan(model, smaller, loss_fn=loss_fn, gpus={full.devices}, memory="{full.card}"))'
    )


def _checkpoints(full: _Full) -> Iterator[Advice]:
    kept = full.live.activations
    if full.refused.phase in _WITH_BATCH and kept and kept >= full.missing:
        text = say(
            "{size} of activations waited for backward. A block of the model that is called like this keeps only what it was"
            " given, and runs again in backward; where no backward follows, `with torch.no_grad():` keeps none:",
            size=format_bytes(kept),
        )
        yield Advice("activations", text, "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)")


def _other_tensors(full: _Full) -> Iterator[Advice]:
    foreign = full.live.foreign
    if foreign and foreign >= full.missing:
        text = say(
            "{size} on {device} are no part of this model: other models and tensors, which `del` frees.",
            size=format_bytes(foreign),
            device=full.device,
        )
        yield Advice("foreign", text)


def _more_devices(full: _Full) -> Iterator[Advice]:
    alone = sum(getattr(full.live, role) for role in HELD)
    if full.refused.phase in _WITH_BATCH or not alone:
        return
    text = say(
        "{size} of parameters, buffers, gradients and optimizer state are there whatever the batch. What other cards, and more"
        " of them, would hold:",
        size=format_bytes(alone),
    )
    yield Advice("devices", text, 'print(devwidget.plan(model, batch, gpus=2, memory="16GiB"))')


_LOOKS: tuple[Callable[[_Full], Iterator[Advice]], ...] = (
    _left_gradients, _smaller_batch, _checkpoints, _other_tensors, _more_devices,
)  # fmt: skip
