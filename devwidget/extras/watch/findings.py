"""What is said of a run: the facts of its rows and of its recorded steps as findings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from devwidget.capture.memory.holders import Holder
from devwidget.extras.watch.judgements import SLOW, Growth, Jump, Slowdown
from devwidget.extras.watch.stack_sampler import LEAST_LOOKS, MOST_OF_IT, StackSampler
from devwidget.records.device import DeviceId
from devwidget.records.finding import Finding, Fix
from devwidget.records.memory import Holding
from devwidget.records.schema.message import Message
from devwidget.records.site import Site, cell_label
from devwidget.records.trace import Move, Trace, Wait
from devwidget.report.style.units import format_bytes, format_seconds
from devwidget.report.style.words import site_words

_MOST_LINES = 4
MOST_KEPT = 2
"""Times what a step adds, that may be kept of a step where the line of the most of it is the one to name."""
_QUEUE = Message("a GPU runs asynchronously; Python gets the value only after all queued work has finished")
_BUS = Message("what crosses between devices is copied anew in each step")
_MEANT = Message("what a step makes is freed when nothing of the program refers to it any more")
_HELD = Message("what a variable of the program refers to is not freed")
_ROOM = Message("what a step takes at its peak has to find room beside all that is kept")


def tell_growth(
    growth: Growth, device: DeviceId, step: int, later: int, kept: Sequence[Holding], holder: Holder | None, free: int
) -> Finding:
    """Memory that creeps.

    Args:
        growth: what the rows say.
        device: whose memory.
        step: the one that was recorded.
        later: steps after it at which these of its tensors still lived.
        kept: what lived, by line, most bytes first.
        holder: who holds it.
        free: bytes that are left on the device; 0 where nobody knows.
    """
    told = []
    if holder is not None:
        told.append(holder_words(holder))
    for each in kept[:_MOST_LINES]:
        facts = {"size": format_bytes(each.bytes), "step": step, "later": later, "line": line_words(each.site)}
        told.append(Message("{size} of step {step} still lived {later} steps later: {line}", **facts))
    if free:
        left = f"{int(free / growth.bytes_per_step):,}"
        told.append(Message("at this rate {device} is full after {count} more steps", device=device, count=left))
    # More than grows is kept for a while, too, and one cannot be told from the other.
    is_sure = sum(each.bytes for each in kept) <= MOST_KEPT * growth.bytes_per_step
    return Finding(
        kind="memory-growth",
        severity="warning",
        module=kept[0].module if kept and is_sure else None,
        headline=Message(
            "allocated memory of {device} has grown by {size} a step since step {step}",
            device=device,
            size=format_bytes(round(growth.bytes_per_step)),
            step=growth.since,
        ),
        why=_MEANT,
        notes=tuple(told),
        fault=kept[0].site if kept and is_sure else None,
        fixes=(Fix(Message("keep numbers, or `.detach()` of a tensor, not what has its graph; or bound what is kept")),),
    )


def holder_words(holder: Holder) -> Message:
    """``list `cache` of main() in train.py holds what stays: 160 items``."""
    file = Message("the notebook") if cell_label(holder.file) else holder.file.rsplit("/", 1)[-1]
    facts: dict[str, str | int] = {"kind": holder.kind, "name": holder.name, "count": f"{holder.items:,}"}
    if holder.function:
        facts["where"] = Message("{function}() in {file}", function=holder.function, file=file)
    else:
        facts["where"] = file
    if not holder.items and not holder.by_graph:
        return Message("{kind} `{name}` of {where} holds what stays", **facts)
    if not holder.items:
        return Message("the graph of `{name}` of {where} needs what stays, and grows", **facts)
    if holder.by_graph:
        return Message("{kind} `{name}` of {where} holds {count} items, and their graphs need what stays", **facts)
    return Message("{kind} `{name}` of {where} holds what stays: {count} items", **facts)


def tell_jump(jump: Jump, device: DeviceId, holder: Holder, line: Site | None) -> Finding:
    """Memory that is higher from some step on, by what one variable has been holding since."""
    size = format_bytes(jump.bytes)
    headline = Message("allocated memory of {device} is {size} higher since about step {step}", device=device, size=size,
                       step=jump.since)  # fmt: skip
    return Finding(
        kind="more-memory",
        severity="info",
        module=None,
        headline=headline,
        why=_HELD,
        notes=(holder_words(holder),),
        fault=line,
    )


def tell_longer_inputs(growth: Growth, peaks: Sequence[tuple[DeviceId, int, int]], site: Site | None) -> Finding:
    """Inputs that grow from step to step, and the peaks of devices with them: before, and now."""
    told = []
    for device, before, now in peaks:
        facts = {"device": device, "before": format_bytes(before), "now": format_bytes(now)}
        told.append(Message("the peak of {device} was {before}, and is {now}", **facts))
    count = f"{growth.bytes_per_step:,.0f}"
    return Finding(
        kind="longer-inputs",
        severity="info",
        module="",
        headline=Message(
            "the inputs of the model grow by {count} elements a step since step {step}", count=count, step=growth.since
        ),
        why=_ROOM,
        notes=tuple(told),
        fault=site,
    )


def tell_slowdown(slow: Slowdown, changes: Iterable[str], sampler: StackSampler | None = None) -> Finding:
    """Steps that have become slow.

    Args:
        slow: what the rows say.
        changes: what has changed about then.
        sampler: what was seen of the part that takes the time; None where nobody could look.
    """
    lines = []
    notes = [Message("all parts of the step take longer")]
    if sampler is not None:
        lines = [each for each in sampler.sum_part(slow.part).lines if each[2] >= LEAST_LOOKS]
    # What the part took before is spent somewhere too, and nobody has looked then.
    is_sure = bool(lines) and lines[0][1] >= MOST_OF_IT and slow.part_now >= SLOW * slow.part_before
    if slow.part:
        times = {"now": format_seconds(slow.part_now / 1e6), "before": format_seconds(slow.part_before / 1e6)}
        notes = [Message("{part} takes {now} of it, before {before}", part=_PART_NAMES.get(slow.part, slow.part), **times)]
    if sampler is not None:
        notes += _tell_lines(slow.part, lines, sampler)
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


def _tell_lines(part: str, lines: Sequence[tuple[Site, float, int]], sampler: StackSampler) -> Iterator[Message]:
    """Where the program stands while a part takes its time, and what is known of the processes for which it waits there."""
    first, last = sampler.steps or (0, 0)
    for site, share, _ in lines[: 1 if lines and lines[0][1] >= MOST_OF_IT else _MOST_LINES]:
        facts = {"share": f"{share:.0%}", "first": first, "last": last, "line": line_words(site)}
        yield Message("{share} of that was spent at one line, as seen in steps {first} to {last}: {line}", **facts)
    if sampler.workers is not None and sampler.sum_part(part).waiting >= MOST_OF_IT:
        functions = ", ".join(f"`{name}` ({site})" for name, site in sampler.workers.functions)
        yield Message(
            "there a loader waits for its workers, {count} of them, which run {functions}",
            count=sampler.workers.processes,
            functions=functions,
        )


_PART_NAMES = {
    "data": Message("what lies between the steps, the loader for one,"),
    "forward": Message("the forward pass"),
    "loss": Message("the loss"),
    "backward": Message("the backward pass"),
    "optimizer": Message("the optimizer"),
    "other": Message("what lies between backward and the optimizer"),
}


def tell_late(line: Move | Wait, first: int, before: int, changes: Iterable[str]) -> Finding:
    """A crossing, or a wait, that recorded steps did not have at first."""
    if isinstance(line, Move):
        kind, why = "late-hop", _BUS
        headline = Message(
            "{size} cross from {source} to {target} in each step since about step {step}",
            size=format_bytes(line.bytes * line.count),
            source=line.source,
            target=line.target,
            step=first,
        )
    else:
        kind, why = "late-wait", _QUEUE
        headline = Message(
            "`{code}` has waited for {device} in each step since about step {step}",
            code=line.expression or line.call.strip("_"),
            device=line.device,
            step=first,
        )
    facts = {"first": first, "next": first + 1, "before": before}
    steps = Message("steps {first} and {next} were recorded with it, step {before} without", **facts)
    return Finding(
        kind=kind,
        severity="warning",
        module=line.module,
        headline=headline,
        why=why,
        notes=(steps, *changes),
        fault=find_asker(line),
    )


def find_asker(line: Move | Wait) -> Site | None:
    """The user's line, with that of a library that it has called."""
    if isinstance(line, Move):
        return line.site
    return line.asked_by


def tell_moved(step: int, before: DeviceId, now: DeviceId, site: Site | None, *, is_evaluation: bool) -> Finding:
    """Parameters that are on another device than before."""
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
        why=Message("`Module.to` moves the one model that there is, for all who have it"),
        fault=site,
    )


_SIZE = r"([\d.]+) (bytes|KiB|MiB|GiB)"
_REFUSED = re.compile(rf"Tried to allocate {_SIZE}.*?{_SIZE} is reserved by PyTorch but unallocated", re.DOTALL)
_UNITS = ("bytes", "KiB", "MiB", "GiB")
_PIECES = Fix(
    Message("let the pieces be of any size: set {setting} before the program begins", setting="`PYTORCH_CUDA_ALLOC_CONF`"),
    code="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
)


def _find_pieces(error: str) -> tuple[int, int]:
    """Bytes that were asked for, and those that the allocator had in pieces; only the words of the exception tell."""
    found = _REFUSED.search(error)
    if found is None:
        return 0, 0
    asked, free = (float(found[at]) * 1024 ** _UNITS.index(found[at + 1]) for at in (1, 3))
    return round(asked), round(free)


def tell_out_of_memory(step: int, error: str, last: tuple[int, Trace] | None, site: Site | None) -> Finding:
    """The run ended because a device was full: what the last recorded step had in use at its peak.

    Args:
        step: in which it ended.
        error: the words of the exception.
        last: the last recorded step, with its number.
        site: the line that asked for more.
    """
    asked, free = _find_pieces(error)
    told: list[Message] = []
    fixes: tuple[Fix, ...] = ()
    if asked and free >= asked:
        sizes = {"free": format_bytes(free), "asked": format_bytes(asked)}
        told.append(Message("the allocator had {free} that nothing used, in pieces that are smaller than {asked}", **sizes))
        fixes = (_PIECES,)
    if last is not None:
        for line, size in _sum_fullest(last[1]).most_common(_MOST_LINES):
            facts = {"step": last[0], "size": format_bytes(size), "line": line}
            told.append(Message("at the peak of step {step}: {size} made by {line}", **facts))
    return Finding(
        kind="out-of-memory",
        severity="error",
        module=None,
        headline=Message("the run ended in step {step}: {error}", step=step, error=error.partition("\n")[0]),
        why=_ROOM,
        notes=tuple(told),
        fault=site,
        fixes=fixes,
    )


def _sum_fullest(trace: Trace) -> Counter[str]:
    """Bytes by line at the peak of the fullest device; a line has a holding for each part that its tensors play."""
    made = Counter[str]()
    fullest = max(trace.memory, key=lambda curve: curve.peak.allocated if curve.peak else 0, default=None)
    if fullest is not None:
        for each in fullest.holdings:
            made[line_words(each.site)] += each.bytes
    return made


def line_words(site: Site | None) -> str:
    """`train.py:12 loss = ...`, with the number of a cell for what a session calls it."""
    if site is None:
        return Message("a line that is not known")
    return f"{site_words(site)}  {site.text.partition(chr(10))[0]}".strip()
