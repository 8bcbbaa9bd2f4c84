"""What one DataParallel call cost, in sentences with numbers, and what each part of its picture is."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.language.speaking import say
from devwidget.records.device import DeviceId
from devwidget.records.errors import of_worker
from devwidget.records.parallel import Piece, Replica
from devwidget.report.style.units import count_words, format_bytes, format_seconds
from devwidget.report.style.words import code_word, first_line, piece_words, row_words, site_words, tensor_words
from devwidget.views.parallel import ParallelCall, whole_outputs


def parallel_title(call: ParallelCall) -> str:
    """`DataParallel(GPT2) at encoder`."""
    title = f"DataParallel({call.call.class_name})"
    if call.wrapper:
        return say("{kind} at {path}", kind=title, path=call.wrapper)
    return title


def parallel_summary(call: ParallelCall) -> str:
    """The cut and the time of each step, on one line."""
    if not call.replicas:
        return say(
            "device_ids has one GPU, {source}: the module is called directly, nothing is split or copied between GPUs",
            source=call.source,
        )
    parts = [
        say(
            "{samples} split over {replicas}",
            samples=count_words(call.samples, "sample"),
            replicas=count_words(len(call.replicas), "replica"),
        )
    ]
    steps = ("scatter", "replicate", "forward", "gather")
    times = {step: getattr(call.call, f"{step}_seconds") for step in steps}
    parts += [f"{code_word(step)} {format_seconds(seconds)}" for step, seconds in times.items() if seconds]
    if call.times > 1:
        parts.append(say("last of {times} calls", times=f"{call.times:,}"))
    return " · ".join(parts)


def parallel_words(call: ParallelCall) -> list[str]:
    """What the flow costs, one sentence each."""
    if call.replicas:
        return [words for look in _LOOKS for words in look(call)]
    return []


def _order_words(call: ParallelCall) -> Iterator[str]:
    indices = [device.index or 0 for device in call.call.device_ids]
    if indices != sorted(indices):
        yield say("`device_ids` begins with {source}: the model is there, and gradients are summed there.", source=call.source)
    if call.call.output_device != call.source:
        yield say(
            "`output_device` is {output_device}: outputs are gathered there, not on {source}.",
            output_device=call.call.output_device,
            source=call.source,
        )


def _copy_words(call: ParallelCall) -> Iterator[str]:
    if call.copied_bytes:
        one = max(replica.parameter_bytes for replica in call.replicas)
        copies = count_words(sum(1 for replica in call.replicas if replica.parameter_bytes), "replica")
        size = format_bytes(call.copied_bytes)
        yield say(
            "Every forward copies {one} of parameters and buffers from {source} to {copies}: {size}.",
            one=format_bytes(one),
            source=call.source,
            copies=copies,
            size=size,
        )


def _gather_words(call: ParallelCall) -> Iterator[str]:
    point = call.gather_point
    if point is None:
        return
    largest = whole_outputs(call.replicas, call.call.dim)[0]
    facts = {
        "point": point,
        "what": f"`{largest.name}` {tensor_words(largest.dtype, largest.shape)}",
        "all": format_bytes(call.gathered_bytes),
        "crossed": format_bytes(call.crossed_bytes),
    }
    if call.gathered_on:
        yield say(
            "The outputs are gathered on {point}; the largest is {what}. It holds all {all}, {crossed} of them copied"
            " from other GPUs.",
            **facts,
        )
    else:
        yield say(
            "The outputs are to be gathered on {point}; the largest is {what}. It has to hold all {all}, {crossed} of"
            " them from other GPUs.",
            **facts,
        )


def _end_words(call: ParallelCall) -> Iterator[str]:
    if call.error:
        error, place = of_worker(call.error)
        told = " ".join(error.partition(" Including non-PyTorch memory")[0].split())
        yield (
            say("The step ended {place} with {told}", place=place, told=told)
            if place
            else say("The step ended with {told}", told=told)
        )


def _peak_words(call: ParallelCall) -> Iterator[str]:
    peaks = {device: call.peak_on(device) for device in call.call.device_ids}
    first, *rest = sorted(peaks, key=lambda device: -peaks[device])
    if rest and peaks[rest[0]] and peaks[first] >= 1.1 * peaks[rest[0]]:
        yield say(
            "The peak of {first} is {most}; the others reach at most {rest}.",
            first=first,
            most=format_bytes(peaks[first]),
            rest=format_bytes(peaks[rest[0]]),
        )


def _gradient_words(call: ParallelCall) -> Iterator[str]:
    if call.reduced_bytes:
        yield say(
            "In backward, {size} of gradients are copied to {source} and summed there.",
            size=format_bytes(call.reduced_bytes),
            source=call.source,
        )


def _card_names(call: ParallelCall) -> Iterator[str]:
    cards = {device: call.memory[device].card for device in call.call.device_ids if device in call.memory}
    moved = [device for device, card in cards.items() if card is not None and card != device.index]
    if moved:
        pairs = row_words(
            say("{device} is GPU {card} (UUID {uuid}…)", device=device, card=card, uuid=call.memory[device].uuid[:8])
            for device, card in cards.items()
        )
        yield say(
            "The machine and torch number the GPUs differently (`CUDA_VISIBLE_DEVICES` renumbers them): {pairs}.",
            pairs=pairs,
        )


_LOOKS = (_order_words, _copy_words, _gather_words, _end_words, _peak_words, _gradient_words, _card_names)


def card_words(call: ParallelCall, device: DeviceId) -> str:
    """`GPU 2, NVIDIA A100`, `GPU 2` for a virtual one; "" where nothing is known of the card."""
    known = call.memory.get(device)
    if known is None:
        return ""
    number = f"GPU {known.card}" if known.card is not None else ""
    return ", ".join(part for part in (number, "" if known.virtual and number else known.name) if part)


def part_lines(call: ParallelCall, what: str, number: int = -1) -> list[str]:
    """What a part of the picture of a call is, by its kind and its replica's number: a title, figures, the line of the call."""
    if number < 0:
        title, text = _part_words(call, what)
    else:
        title, text = _replica_words(call, what, call.find_replica(number))
    return [title, text, "  ".join(filter(None, (site_words(call.call.site), first_line(call.call.site))))]


def _part_words(call: ParallelCall, what: str) -> tuple[str, str]:
    if what == "batch":
        samples = count_words(call.samples, "sample")
        return say("batch"), say("{samples} along axis {dim}", samples=samples, dim=call.call.dim)
    if what == "outputs":
        size = format_bytes(call.gathered_bytes)
        return say("outputs"), say("{size} gathered on {point}", size=size, point=call.gather_point)
    if what == "gradients":
        size = format_bytes(call.reduced_bytes)
        return say("gradients"), say("{size} copied to {source}", size=size, source=call.source)
    return call.call.class_name, say("is on {source}, copied to the others at each call", source=call.source)


def _replica_words(call: ParallelCall, what: str, replica: Replica) -> tuple[str, str]:
    device, source = replica.device, call.source
    if what == "scatter":
        return say("batch to {device}", device=device), _piece_lines(replica.inputs)
    if what == "replicate":
        buffers, parameters = format_bytes(replica.buffer_bytes), replica.parameter_bytes - replica.buffer_bytes
        text = say("{parameters} of parameters, {buffers} of buffers", parameters=format_bytes(parameters), buffers=buffers)
        return say("model to {device}", device=device), text
    if what == "gather":
        title = say("outputs of {device} to {home}", device=device, home=call.gather_point)
        return title, _piece_lines(replica.outputs)
    if what == "reduce":
        title = say("gradients of {device} to {source}", device=device, source=source)
        return title, format_bytes(replica.gradient_bytes)
    spans = replica.thread or say("never ran")
    if replica.thread and replica.seconds:
        spans = say("{time} in {thread}", time=format_seconds(replica.seconds), thread=replica.thread)
    title, card = say("replica {number} on {device}", number=replica.number, device=device), card_words(call, device)
    out = say("out {size}", size=format_bytes(replica.output_bytes))
    if call.peak_on(device):
        peak = say("peak {size}", size=format_bytes(call.peak_on(device)))
    else:
        peak = ""
    failed = say("failed") if replica.failed else ""
    return f"{title} ({card})" if card else title, row_words((count_words(replica.samples, "sample"), out, peak, failed, spans))


def _piece_lines(pieces: tuple[Piece, ...], most: int = 6) -> str:
    parts = [f"`{piece_words(piece)}` {tensor_words(piece.dtype, piece.shape)} {format_bytes(piece.bytes)}" for piece in pieces]
    if not parts:
        return say("no tensors")
    shown = row_words(parts[:most])
    if len(parts) > most:
        return say("{parts}, and {count} more", parts=shown, count=len(parts) - most)
    return shown
