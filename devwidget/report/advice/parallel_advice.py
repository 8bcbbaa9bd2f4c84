"""What to change about a DataParallel call, with its numbers; each advice is given only where it applies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from devwidget.language.speaking import say
from devwidget.records.device import DeviceId
from devwidget.report.style.units import counted, format_bytes
from devwidget.report.style.words import device_list
from devwidget.views.parallel import ParallelCall

WORTH_A_WORD = 1024**2
"""Bytes from which a copy is worth advice: 1 MiB takes some 0.1 ms over PCIe, as long as starting ten kernels."""
LOPSIDED = 1.1
"""How much more one GPU must hold, or have, than the others to be worth advice."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One advice. `code` can be pasted; "" where there is no single line to write."""

    about: str
    text: str
    code: str = ""


def advice(call: ParallelCall) -> tuple[Advice, ...]:
    """All that applies, the largest gain first."""
    if not call.replicas:
        return ()
    return tuple(found for look in _LOOKS for found in look(call))


def _short_batch(call: ParallelCall) -> Iterator[Advice]:
    if not call.idle or not call.samples:
        return
    count, part = len(call.call.device_ids), call.replicas[0].samples
    text = say(
        "{samples} reach {busy} of {count} GPUs; {idle} had nothing to do. A batch of {sizes} reaches all.",
        samples=counted(call.samples, "sample"),
        busy=len(call.replicas),
        count=count,
        idle=device_list(call.idle),
        sizes=_multiples(call.samples, count),
    )
    if call.samples > count:
        text = say("torch cuts parts of {part}, so that {text}", part=part, text=text)
    yield Advice("batch", text[0].upper() + text[1:])


def _uneven(call: ParallelCall) -> Iterator[Advice]:
    samples = [replica.samples for replica in call.replicas]
    if call.idle or min(samples) > 0.75 * max(samples) or not min(samples):
        return
    last, count = call.replicas[samples.index(min(samples))], len(samples)
    text = say(
        "{device} got {samples}, the others up to {most}: it waits for them. A batch of {sizes} is cut evenly; if it was the"
        " last batch of an epoch, use `DataLoader(drop_last=True)`.",
        device=last.device,
        samples=counted(min(samples), "sample"),
        most=max(samples),
        sizes=_multiples(call.samples, count),
    )
    yield Advice("batch", text)


def _multiples(samples: int, count: int) -> str:
    below, above = samples // count * count, -(-samples // count) * count
    sizes = [str(size) for size in dict.fromkeys((below, above)) if size]
    return sizes[0] if len(sizes) == 1 else say("{first} or {second}", first=sizes[0], second=sizes[1])


def _loss_inside(call: ParallelCall) -> Iterator[Advice]:
    if not call.trains or call.gathered_bytes < WORTH_A_WORD:
        return
    numbers = [piece for piece in call.replicas[0].outputs if not piece.shape]
    whole, point, count = format_bytes(call.gathered_bytes), call.gather_point, counted(len(call.replicas), "number")
    if numbers:
        text = say(
            "Besides the loss, {whole} of outputs are gathered on {point}. `{name}` is there already: return it alone, and"
            " {count} are gathered instead of {whole}.",
            whole=whole,
            point=point,
            name=numbers[0].name,
            count=count,
        )
        yield Advice("loss", text)
        return
    parts = "equal" if len({replica.samples for replica in call.replicas}) == 1 else "unequal"
    text = say(
        "Compute the loss inside `forward` and return it: {count} are gathered on {point} instead of {whole}, and what the loss"
        " needs besides stays on the GPU that computed the outputs.",
        count=count,
        point=point,
        whole=whole,
    )
    if parts != "equal":
        text = say("{first} {second}", first=text, second=say("The parts are unequal here: weight each mean by its samples."))
    yield Advice("loss", text, _LOSS_INSIDE)


_LOSS_INSIDE = """class WithLoss(nn.Module):
    def __init__(self, model, loss_fn):
        super().__init__()
        self.model, self.loss_fn = model, loss_fn

    def forward(self, x, target):
        return self.loss_fn(self.model(x), target)

loss = nn.DataParallel(WithLoss(model, loss_fn))(x, target).mean()"""


def _other_gather_point(call: ParallelCall) -> Iterator[Advice]:
    point, gathered = call.gather_point, call.gathered_bytes
    if point != call.source or not call.trains or gathered < WORTH_A_WORD:
        return
    others = [device for device in call.call.device_ids if device != point and call.peak(device)]
    best = min(others, key=call.peak, default=None)
    if best is None or call.peak(best) + gathered > call.peak(point) - gathered:
        return
    text = say(
        "{point} holds the model, its gradients and the outputs. `output_device={index}` gathers the {gathered} on {best},"
        " which peaks at {low} against {high}; the targets must be there too.",
        point=point,
        index=best.index,
        gathered=format_bytes(gathered),
        best=best,
        low=format_bytes(call.peak(best)),
        high=format_bytes(call.peak(point)),
    )
    yield Advice("output_device", text)


def _larger_first(call: ParallelCall) -> Iterator[Advice]:
    room = {device: _room(call, device) for device in call.call.device_ids}
    best = max(room, key=lambda device: room[device])
    if not room[call.source] or room[best] < LOPSIDED * room[call.source] or call.peak(call.source) < call.peak(best):
        return
    order = [best, *(device for device in call.call.device_ids if device != best)]
    text = say(
        "{source} does the most and has {room}; {best} has {more}: name it first and put the model there.",
        source=call.source,
        room=format_bytes(room[call.source]),
        best=best,
        more=format_bytes(room[best]),
    )
    yield Advice("device_ids", text, f'nn.DataParallel(model.to("{best}"), device_ids={[device.index for device in order]})')


def _room(call: ParallelCall, device: DeviceId) -> int:
    """Bytes of a card that other processes do not hold; 0 unknown."""
    known = call.memory.get(device)
    return known.total - known.others if known is not None else 0


def _distributed(call: ParallelCall) -> Iterator[Advice]:
    copied = call.copied_bytes - sum(replica.buffer_bytes for replica in call.replicas)
    if not call.trains or copied < WORTH_A_WORD:
        return
    text = say(
        "`DistributedDataParallel` runs one process for each GPU, which keeps its copy of the model: it saves the {size} of"
        " parameters copied at every forward, gathers no outputs, and averages gradients while backward still runs.",
        size=format_bytes(copied),
    )
    yield Advice("ddp", text)


_LOOKS: tuple[Callable[[ParallelCall], Iterator[Advice]], ...] = (
    _short_batch, _uneven, _loss_inside, _other_gather_point, _larger_first, _distributed,
)  # fmt: skip
