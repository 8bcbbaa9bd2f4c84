"""slow-loader: the loop waits for its loader for most of each step.

Why: while `next(loader)` runs, the model gets no work; worker processes make batches during the step before.
Bad: `DataLoader(data, 64)` with a `__getitem__` that decodes a file.
Good: `DataLoader(data, 64, num_workers=4)`; or decode all files once, before training.
Source: https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.trace import LoaderTime, Trace
from devwidget.rules.call_edits import add_keyword
from devwidget.rules.edits.draft import mended
from devwidget.rules.found import Found
from devwidget.rules.registry import rule

LEAST_SHARE = 0.5
"""Share of a step."""
LEAST_SECONDS = 0.005
"""Seconds for a batch; smaller figures come from other work of the machine."""
LEAST_FIRST_SECONDS = 0.05
"""The same for the only batch of a traced step."""
LEAST_BATCHES = 3
"""Batches measured. The longest does not count: a file may be opened with the first item, or a cache be filled."""

_WORKERS = 4


@rule(
    "slow-loader",
    "warning",
    needs=("loaders",),
    why=Message("the model gets no work while the program waits for a batch"),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each line that waits for its batches for most of a step."""
    for each in trace.loaders:
        if _is_slow(each) and _is_measurable(each, trace):
            yield _make_finding(each)


def _is_slow(time: LoaderTime) -> bool:
    if time.batches == 1:
        return time.seconds >= max(LEAST_FIRST_SECONDS, LEAST_SHARE * time.loop_seconds)
    if time.batches < LEAST_BATCHES:
        return False
    seconds, whole = time.seconds - time.longest, time.loop_seconds - time.longest
    return seconds >= max(LEAST_SECONDS * (time.batches - 1), LEAST_SHARE * whole)


def _is_measurable(time: LoaderTime, trace: Trace) -> bool:
    """Whether the loop waits for its GPU, which else may take longer than the loader without the host noticing.

    Virtual GPUs compute at once, also what a loader computes on them.
    """
    if trace.virtual_gpus:
        return not time.uses_gpu
    has_gpu = any(curve.device.kind != "cpu" for curve in trace.memory)
    return not has_gpu or any(2 * wait.turns >= trace.steps for wait in trace.waits)


def _make_finding(time: LoaderTime) -> Found:
    facts = {
        "share": f"{time.seconds / time.loop_seconds:.0%}",
        "wait": f"{1000 * time.seconds / time.batches:.0f}",
        "step": f"{1000 * time.loop_seconds / time.batches:.0f}",
    }
    headline = Message("{share} of the time of each step was spent in next(loader): {wait} of {step} ms", **facts)
    return Found(
        time.site,
        headline,
        notes=tuple(_list_notes(time)),
        fixes=tuple(_list_fixes(time)),
        cause=str(time.site),
    )


def _list_notes(time: LoaderTime) -> Iterator[Message]:
    if time.loader is not None:
        yield Message("the loader is created at {place}", place=time.loader)


def _list_fixes(time: LoaderTime) -> Iterator[Fix | None]:
    if time.workers:
        yield Fix(Message("use more workers than {count}, or do less for each sample", count=time.workers))
    elif not time.uses_gpu:  # a process that is forked cannot use the GPU of its parent
        words = Message("make the batches in worker processes, while the model computes")
        code = f"DataLoader(..., num_workers={_WORKERS})"
        yield mended(time.loader, words, add_keyword, ["DataLoader"], "num_workers", str(_WORKERS), instead=code)
    yield Fix(Message("compute once, before training, what is the same for a sample in every epoch"), confidence="choice")
