"""What one DataParallel call cost, in sentences with numbers."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.device import DeviceId
from devwidget.records.errors import of_worker
from devwidget.report.style.units import counted, format_bytes, format_seconds
from devwidget.report.style.words import tensor_words
from devwidget.views.parallel import ParallelCall, whole_outputs


def parallel_title(call: ParallelCall) -> str:
    """`DataParallel(GPT2) at encoder`."""
    return f"DataParallel({call.call.class_name}){f' at {call.wrapper}' if call.wrapper else ''}"


def parallel_summary(call: ParallelCall) -> str:
    """The cut and the time of each step, on one line."""
    if not call.replicas:
        return f"device_ids name one GPU, {call.source}: the module is called directly, nothing is cut or copied between GPUs"
    parts = [f"{counted(call.samples, 'sample')} cut over {counted(len(call.replicas), 'replica')}"]
    steps = ("scatter", "replicate", "forward", "gather")
    times = {step: getattr(call.call, f"{step}_seconds") for step in steps}
    parts += [f"{step} {format_seconds(seconds)}" for step, seconds in times.items() if seconds]
    if call.times > 1:
        parts.append(f"last of {call.times:,} calls")
    return " · ".join(parts)


def parallel_words(call: ParallelCall) -> list[str]:
    """What the flow costs, one sentence each."""
    looks = (_order, _copies, _gather, _ended, _peaks, _gradients, _names) if call.replicas else ()
    return [words for look in looks for words in look(call)]


def _order(call: ParallelCall) -> Iterator[str]:
    indices = [device.index or 0 for device in call.call.device_ids]
    if indices != sorted(indices):
        yield f"`device_ids` begins with {call.source}: the model lives there, and gradients come together there."
    if call.call.output_device != call.source:
        yield f"`output_device` is {call.call.output_device}: outputs are gathered there, not on {call.source}."


def _copies(call: ParallelCall) -> Iterator[str]:
    if call.copied_bytes:
        one = max(replica.parameter_bytes for replica in call.replicas)
        copies = counted(sum(1 for replica in call.replicas if replica.parameter_bytes), "replica")
        size = format_bytes(call.copied_bytes)
        yield f"Every forward copies {format_bytes(one)} of parameters and buffers from {call.source} to {copies}: {size}."


def _gather(call: ParallelCall) -> Iterator[str]:
    point = call.gather_point
    if point is None:
        return
    largest = whole_outputs(call.replicas, call.call.dim)[0]
    what = f"`{largest.name}` {tensor_words(largest.dtype, largest.shape)}"
    yield (
        f"The outputs are {'gathered' if call.gathered_on else 'to be gathered'} on {point}, {what} the largest: it"
        f" {'holds' if call.gathered_on else 'has to hold'} all {format_bytes(call.gathered_bytes)},"
        f" {format_bytes(call.crossed_bytes)} of them {'copied ' if call.gathered_on else ''}from other GPUs."
    )


def _ended(call: ParallelCall) -> Iterator[str]:
    if call.error:
        error, place = of_worker(call.error)
        told = " ".join(error.partition(" Including non-PyTorch memory")[0].split())
        yield f"The step ended {place} with {told}" if place else f"The step ended with {told}"


def _peaks(call: ParallelCall) -> Iterator[str]:
    peaks = {device: call.peak(device) for device in call.call.device_ids}
    first, *rest = sorted(peaks, key=lambda device: -peaks[device])
    if rest and peaks[rest[0]] and peaks[first] >= 1.1 * peaks[rest[0]]:
        yield f"{first} peaks at {format_bytes(peaks[first])}, the others at {format_bytes(peaks[rest[0]])} at most."


def _gradients(call: ParallelCall) -> Iterator[str]:
    if call.reduced_bytes:
        yield f"In backward {format_bytes(call.reduced_bytes)} of gradients are copied to {call.source} and added up there."


def _names(call: ParallelCall) -> Iterator[str]:
    cards = {device: call.memory[device].card for device in call.call.device_ids if device in call.memory}
    moved = [device for device, card in cards.items() if card is not None and card != device.index]
    if moved:
        pairs = ", ".join(f"{device} is GPU {card} (UUID {call.memory[device].uuid[:8]}…)" for device, card in cards.items())
        yield f"The machine numbers its GPUs in another way than torch (`CUDA_VISIBLE_DEVICES` renumbers them): {pairs}."


def card_words(call: ParallelCall, device: DeviceId) -> str:
    """`GPU 2, NVIDIA A100`, `GPU 2` for a virtual one; "" where nothing is known of the card."""
    known = call.memory.get(device)
    if known is None:
        return ""
    number = f"GPU {known.card}" if known.card is not None else ""
    return ", ".join(part for part in (number, "" if known.virtual and number else known.name) if part)
