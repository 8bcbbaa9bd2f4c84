"""What one DataParallel call cost, in sentences with numbers."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from devwidget.language.speaking import say
from devwidget.records.device import DeviceId
from devwidget.records.parallel import Replica
from devwidget.report.style.units import count_words, format_bytes, format_seconds, some_bytes, some_seconds
from devwidget.report.style.words import code_word
from devwidget.views.parallel import ParallelCall


def parallel_title(call: ParallelCall) -> str:
    """`DataParallel(GPT2) at encoder`."""
    title = f"DataParallel({call.call.class_name})"
    if call.wrapper:
        return say("{kind} at {path}", kind=title, path=call.wrapper)
    return title


def parallel_summary(call: ParallelCall) -> str:
    """The split and the time of each step, on one line."""
    if not call.replicas:
        return say(
            "device_ids has one GPU, {source}: the module is called directly, nothing is split or copied between GPUs",
            source=call.source,
        )
    samples, replicas = count_words(call.samples, "sample"), count_words(len(call.replicas), "replica")
    parts = [say("{samples} split over {replicas}", samples=samples, replicas=replicas)]
    for step in ("scatter", "replicate", "forward", "gather"):
        seconds = getattr(call.call, f"{step}_seconds")
        if seconds:
            parts.append(f"{code_word(step)} {format_seconds(seconds)}")
    if call.times > 1:
        parts.append(say("last of {times} calls", times=f"{call.times:,}"))
    return " · ".join(parts)


def parallel_words(call: ParallelCall) -> Iterator[str]:
    """What the flow costs, one sentence each."""
    if not call.replicas:
        return
    indices = [device.index or 0 for device in call.call.device_ids]
    if indices != sorted(indices):
        yield say("`device_ids` begins with {source}: the model is there, and gradients are summed there.", source=call.source)
    if call.call.output_device != call.source:
        yield say(
            "`output_device` is {output_device}: outputs are gathered there, not on {source}.",
            output_device=call.call.output_device,
            source=call.source,
        )
    copies = list(filter(None, map(attrgetter("parameter_bytes"), call.replicas)))
    if copies:
        yield say(
            "Every forward copies {one} of parameters and buffers from {source} to {copies}: {size}.",
            one=format_bytes(max(copies)),
            source=call.source,
            copies=count_words(len(copies), "replica"),
            size=format_bytes(sum(copies)),
        )
    if call.gather_point is not None:
        yield say(
            "DataParallel gathers the outputs on {point}: {all}, {crossed} of it from other GPUs.",
            point=call.gather_point,
            all=format_bytes(call.gathered_bytes),
            crossed=format_bytes(call.crossed_bytes),
        )
    if call.reduced_bytes:
        yield say(
            "In backward, {size} of gradients are copied to {source} and summed there.",
            size=format_bytes(call.reduced_bytes),
            source=call.source,
        )


def card_words(call: ParallelCall, device: DeviceId) -> str:
    """`GPU 2, NVIDIA A100`, `GPU 2` for a virtual one; "" where nothing is known of the card."""
    known = call.memory.get(device)
    if known is None:
        return ""
    if known.card is None:
        return known.name
    if known.virtual or not known.name:
        return f"GPU {known.card}"
    return f"GPU {known.card}, {known.name}"


def replica_card(call: ParallelCall, replica: Replica) -> dict[str, str]:
    """What one replica got, gave and took."""
    known = call.memory.get(replica.device)
    gradients = some_bytes(replica.gradient_bytes)
    if call.call.backward:
        gradients = gradients or say("own")
    return {
        "device": str(replica.device),
        "card": card_words(call, replica.device),
        "uuid": known.uuid if known is not None else "",
        "samples": str(replica.samples),
        "input": format_bytes(replica.input_bytes),
        "parameters": some_bytes(replica.parameter_bytes) or say("own"),
        "output": format_bytes(replica.output_bytes),
        "gradients": gradients,
        "peak": some_bytes(call.peak_on(replica.device)),
        "time": some_seconds(replica.seconds),
    }
