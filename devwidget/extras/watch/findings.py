"""Findings of a run from its rows and its recorded steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from devwidget.capture.stack_sampler import LEAST_LOOKS, MOST_OF_IT, StackSampler
from devwidget.extras.watch.judgements import SLOW, Growth, Slowdown
from devwidget.records.device import DeviceId
from devwidget.records.finding import Finding, Fix
from devwidget.records.held_memory import MemoryHolder
from devwidget.records.memory import Holding
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.trace import Trace
from devwidget.report.style.units import format_bytes, format_seconds
from devwidget.report.style.words import name_holder, site_words

_MOST_LINES = 4
MOST_KEPT = 2
"""Multiple of the growth per step. If more is kept of a step, the line that keeps most is not blamed."""
_MEANT = Message("tensors of a step are freed once the program no longer references them")
_KEEP_LESS = Fix(
    Message("keep `loss.item()` or `tensor.detach()` instead of a tensor with its graph, or limit how many you keep")
)
_ROOM = Message("the peak of a step must fit in addition to everything that is kept")


def tell_growth(
    growth: Growth, device: DeviceId, step: int, later: int, kept: Sequence[Holding], holder: MemoryHolder | None, free: int
) -> Finding:
    """Return the finding about memory that grows steadily.

    Args:
        growth: Growth in the rows.
        device: Device of the memory.
        step: The recorded step.
        later: Number of steps after which its tensors were still allocated.
        kept: What was still allocated, by line, most bytes first.
        holder: Who keeps more of them than before.
        free: Bytes left on the device; 0 if unknown.
    """
    told = []
    if holder is not None:
        told.append(tell_holder(holder))
    for each in kept[:_MOST_LINES]:
        facts = {"size": format_bytes(each.bytes), "step": step, "later": later, "line": line_words(each.site)}
        told.append(Message("{size} of step {step} were still allocated {later} steps later: {line}", **facts))
    if free:
        left = f"{int(free / growth.bytes_per_step):,}"
        told.append(Message("at this rate {device} is full after {count} more steps", device=device, count=left))
    # Tensors may also be kept for a while without growth; the two look alike here.
    is_sure = sum(each.bytes for each in kept) <= MOST_KEPT * growth.bytes_per_step
    return Finding(
        kind="memory-growth",
        severity="warning",
        module=kept[0].module if kept and is_sure else None,
        headline=Message(
            "allocated memory of {device} has grown by {size} per step since step {step}",
            device=device,
            size=format_bytes(round(growth.bytes_per_step)),
            step=growth.since,
        ),
        why=_MEANT,
        notes=tuple(told),
        fault=kept[0].site if kept and is_sure else None,
        fixes=(_KEEP_LESS,),
    )


def tell_holder(holder: MemoryHolder) -> Message:
    """Return ``dict `cache` in train() keeps them alive, 160 items``."""
    words = Message("{holder} keeps them alive", holder=name_holder(holder))
    if holder.is_graph:
        words = Message("the graph behind {holder} keeps them alive", holder=name_holder(holder))
    if holder.items:
        return Message("{words}, {count} items", words=words, count=f"{holder.items:,}")
    return words


def tell_slowdown(slow: Slowdown, changes: Iterable[str], sampler: StackSampler | None = None) -> Finding:
    """Return the finding about steps that have become slow, with changes at about that step."""
    lines = []
    notes = [Message("every part of the step takes longer")]
    if sampler is not None:
        lines = [each for each in sampler.sum_up().lines if each[2] >= LEAST_LOOKS]
    # The earlier time of the part is spent somewhere too, but it was not sampled.
    is_sure = bool(lines) and lines[0][1] >= MOST_OF_IT and slow.part_now >= SLOW * slow.part_before
    if slow.part:
        times = {"now": format_seconds(slow.part_now / 1e6), "before": format_seconds(slow.part_before / 1e6)}
        notes = [Message("{part} takes {now} of it, before {before}", part=_PART_NAMES.get(slow.part, slow.part), **times)]
    if sampler is not None:
        notes += _tell_lines(lines, sampler)
    return Finding(
        kind="slow-steps",
        severity="warning",
        module="" if slow.part == "forward" else None,
        headline=Message(
            "a step has taken {now} since step {step}, before {before}",
            now=format_seconds(slow.now / 1e6),
            step=slow.since,
            before=format_seconds(slow.before / 1e6),
        ),
        why="",
        notes=(*notes, *changes),
        fault=lines[0][0] if is_sure else None,
    )


def _tell_lines(lines: Sequence[tuple[Site, float, int]], sampler: StackSampler) -> Iterator[Message]:
    """Yield where the part spends its time, and what is known of the processes it waits for there."""
    first, last = sampler.steps or (0, 0)
    for site, share, _ in lines[: 1 if lines and lines[0][1] >= MOST_OF_IT else _MOST_LINES]:
        facts = {"share": f"{share:.0%}", "first": first, "last": last, "line": line_words(site)}
        yield Message("{share} of it was spent at one line in steps {first} to {last}: {line}", **facts)
    if sampler.workers is not None and sampler.sum_up().waiting >= MOST_OF_IT:
        functions = ", ".join(f"`{name}` ({site})" for name, site in sampler.workers.functions)
        yield Message(
            "there a loader waits for its {count} workers, which run {functions}",
            count=sampler.workers.processes,
            functions=functions,
        )


_PART_NAMES = {
    "data": Message("the code between the steps, such as the loader,"),
    "forward": Message("the forward pass"),
    "loss": Message("the loss"),
    "backward": Message("the backward pass"),
    "optimizer": Message("the optimizer"),
    "other": Message("the code between backward and the optimizer"),
}


def tell_moved(step: int, before: DeviceId, now: DeviceId, site: Site | None, *, is_evaluation: bool) -> Finding:
    """Return the finding about parameters that are on another device than before."""
    facts = {"step": step, "before": before, "now": now}
    headline = Message("parameters have been on {now} since step {step}, before on {before}", **facts)
    if is_evaluation:
        headline = Message(
            "the evaluation before step {step} ran with parameters on {now}; the steps before ran on {before}", **facts
        )
    return Finding(
        kind="moved-model",
        severity="warning",
        module="",
        headline=headline,
        why=Message("`Module.to` moves the model in place, for all code that uses it"),
        fault=site,
    )


def tell_out_of_memory(step: int, error: str, last: tuple[int, Trace] | None, site: Site | None) -> Finding:
    """Return the finding about a run that ran out of memory, with the peak of the last recorded step."""
    told: list[Message] = []
    if last is not None:
        for line, size in _sum_fullest(last[1]).most_common(_MOST_LINES):
            facts = {"step": last[0], "size": format_bytes(size), "line": line}
            told.append(Message("at the peak of step {step}: {size} allocated by {line}", **facts))
    return Finding(
        kind="out-of-memory",
        severity="error",
        module=None,
        headline=Message("the run ended in step {step}: {error}", step=step, error=error.partition("\n")[0]),
        why=_ROOM,
        notes=tuple(told),
        fault=site,
    )


def _sum_fullest(trace: Trace) -> Counter[str]:
    made = Counter[str]()
    fullest = max(trace.memory, key=lambda curve: curve.peak.allocated if curve.peak else 0, default=None)
    if fullest is not None:
        for each in fullest.holdings:
            made[line_words(each.site)] += each.bytes
    return made


def line_words(site: Site | None) -> str:
    """Return `train.py:12 loss = ...`, with the cell's number in a notebook."""
    if site is None:
        return Message("an unknown line")
    return f"{site_words(site)}  {site.text.partition(chr(10))[0]}".strip()
