"""The part of a batch that reaches all GPUs, and what to change about a step that found no room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from devwidget.language.speaking import say
from devwidget.records.memory import HELD, MemoryCurve, MemoryPoint, Refusal
from devwidget.records.trace import Trace
from devwidget.report.style.units import count_words, format_bytes
from devwidget.views.parallel import ParallelCall
from devwidget.views.sums import total, values_once


@dataclass(frozen=True, slots=True)
class Advice:
    """One advice.

    Attributes:
        text: What to do, and what that gives.
        code: Can be pasted; "" where there is no single line to write.
        samples: How many of the batch the panel offers to trace; 0 for no offer.
    """

    text: str
    code: str = ""
    samples: int = 0


@dataclass(frozen=True, slots=True)
class StepNames:
    """Expressions of the user's code for the parts of a step; "" for a part that it does not have."""

    model: str = "model"
    batch: str = "batch"
    loss: str = "loss_fn"
    target: str = ""

    def plan_call(self, gpus: int, memory: str) -> str:
        """Return the call that plans the step."""
        named = {"loss_fn": self.loss, "target": self.target}
        given = [f"{name}={text}" for name, text in named.items() if text]
        return f"devwidget.plan({', '.join([self.model, self.batch, *given])}, gpus={gpus}, memory={memory!r})".replace(
            "'", '"'
        )


def idle_advice(call: ParallelCall) -> Iterator[Advice]:
    """Yield the part of the batch that is split evenly, where a GPU has got none of it."""
    count, samples = len(call.call.device_ids), total(call.replicas, "samples")
    even = samples - samples % count
    if call.idle and even:
        part = say("{samples} for each of the {count} GPUs", samples=count_words(even // count, "sample"), count=count)
        text = say("A batch of {samples} is split evenly: {part}.", samples=count_words(even, "sample"), part=part)
        yield Advice(text, samples=even)


NAMES = StepNames()
_ROUNDED = 0.99
"""Of a smaller batch: blocks are rounded up, so that memory shrinks a little less than the batch."""
_WITH_BATCH = ("forward", "loss", "backward")
"""Phases in which memory grows with the batch."""


@dataclass(frozen=True, slots=True)
class _Full:
    """A device that had no room.

    Attributes:
        trace: the recording.
        curve: memory of the device in it.
        refused: what did not fit.
        live: what was in use then.
        names: of the parts of the step.
    """

    trace: Trace
    curve: MemoryCurve
    refused: Refusal
    live: MemoryPoint
    names: StepNames

    @property
    def room(self) -> int:
        """Bytes that this process can have there."""
        return self.curve.total - self.curve.end.others

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
        """Samples of the largest batch that fits, as many for each replica."""
        size = int(self.fitting * self.trace.samples)
        replicas = len(values_once(self.trace.replicas, "number")) or 1
        if size > replicas:
            return size - size % replicas
        return size

    @property
    def missing(self) -> int:
        """Bytes; 0 if there was room, in pieces."""
        return max(0, self.live.allocated + self.refused.bytes - self.room)


def memory_advice(trace: Trace, names: StepNames = NAMES) -> tuple[Advice, ...]:
    """All that applies to the allocation that was farthest from fitting: replicas may all have found no room."""
    full = []
    for curve in trace.memory:
        for refused in curve.refused:
            if refused.live is not None:
                full.append(_Full(trace, curve, refused, refused.live, names))
    if not full or any(finding.kind == "kept-memory" for finding in trace.findings):  # which has the cause and its edit
        return ()
    worst = min(full, key=lambda each: each.fitting)
    return tuple(each for look in _FULL_LOOKS for each in look(worst))


def _left_gradients(full: _Full) -> Iterator[Advice]:
    left = full.live.gradients
    if left and full.refused.phase in ("forward", "loss"):
        text = say(
            "{size} of gradients from an earlier step were still allocated. Unless you accumulate gradients, free them"
            " before the next forward:",
            size=format_bytes(left),
        )
        yield Advice(text, f"{full.names.model}.zero_grad(set_to_none=True)")


def _smaller_batch(full: _Full) -> Iterator[Advice]:
    if full.refused.phase not in _WITH_BATCH or not full.growing or not full.missing:
        return
    takes = say(
        "The batch and the tensors computed from it took {took}; the failed allocation requested {asked} more.",
        took=format_bytes(full.growing),
        asked=format_bytes(full.refused.bytes),
    )
    samples = full.trace.samples
    if (full.fitting_samples if samples else full.fitting) <= 0:
        none = say("No batch is small enough: {size} do not depend on the batch size.", size=format_bytes(full.fixed))
        yield Advice(say("{first} {second}", first=takes, second=none))
        return
    most = f"{100 * full.fitting:.0f} %"
    if samples:
        most = say("{fitting} of the {samples}", fitting=f"{full.fitting_samples:,}", samples=count_words(samples, "sample"))
    smaller = say(
        "If this grows with the batch, {most} get past this line; later lines take more. To find the largest batch that"
        " fits, without running it:",
        most=most,
    )
    text = say("{first} {second}", first=takes, second=smaller)
    card = format_bytes(full.curve.total).replace(" ", "")
    code = f"print({full.names.plan_call(len(full.trace.memory), card)}.largest_batch())"
    yield Advice(text, code, full.fitting_samples)


def _use_checkpoints(full: _Full) -> Iterator[Advice]:
    kept = full.live.activations
    if full.refused.phase in _WITH_BATCH and kept and kept >= full.missing:
        text = say(
            "{size} of activations were kept for backward. A block under `torch.utils.checkpoint` keeps only its inputs,"
            " and runs again in backward. Without a backward, use `with torch.no_grad():`, which keeps none.",
            size=format_bytes(kept),
        )
        yield Advice(text, _checkpoint_line(full))


def _checkpoint_line(full: _Full) -> str:
    """Return the line that checkpoints the block that kept most; "" if no module of the model has blocks that kept some."""
    kept: dict[str, int] = {}
    for holding in full.refused.holdings:
        block = _find_block(holding.module or "")
        if holding.role == "activations" and block != holding.module:
            kept[block] = kept.get(block, 0) + holding.bytes
    if not kept:
        return ""
    names = max(kept, key=kept.__getitem__).split(".")
    block = full.names.model + "".join(f"[{name}]" if name.isdigit() else f".{name}" for name in names)
    return checkpoint_code(block)


def _find_block(path: str) -> str:
    """Return the item of a list that a module is in, or else the part of the model."""
    names = path.split(".")
    numbered = [at for at, name in enumerate(names) if name.isdigit()]
    return ".".join(names[: numbered[0] + 1 if numbered else 1])


def checkpoint_code(block: str) -> str:
    """Return the line that has a module keep only its inputs, which needs no change of its callers."""
    return f"{block}.forward = functools.partial(torch.utils.checkpoint.checkpoint, {block}.forward, use_reentrant=False)"


def _other_tensors(full: _Full) -> Iterator[Advice]:
    foreign = full.live.foreign
    if foreign and foreign >= full.missing:
        text = say(
            "{size} on {device} were allocated before and do not belong to this model. They are freed once nothing"
            " references them: no variable, list, output of a cell (`Out`), graph or traceback.",
            size=format_bytes(foreign),
            device=full.curve.device,
        )
        yield Advice(text)


def _more_devices(full: _Full) -> Iterator[Advice]:
    alone = sum(getattr(full.live, role) for role in HELD)
    if full.refused.phase in _WITH_BATCH or not alone:
        return
    text = say(
        "{size} of parameters, buffers, gradients and optimizer state do not depend on the batch. To see whether"
        " the step fits on larger or more GPUs:",
        size=format_bytes(alone),
    )
    yield Advice(text, f"print({full.names.plan_call(2, '16GiB')})")


_FULL_LOOKS: tuple[Callable[[_Full], Iterator[Advice]], ...] = (
    _left_gradients, _smaller_batch, _use_checkpoints, _other_tensors, _more_devices,
)  # fmt: skip
