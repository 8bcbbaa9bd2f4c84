"""Conditions: where a trial is harmless, and why it is only offered elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from devwidget.capture.other_threads import running_thread
from devwidget.records.schema.message import Message
from devwidget.records.trace import Trace

MOST_SECONDS = 5.0
"""A step that took longer is not run again unless somebody asks: a trial, and what it is held against, are two steps each."""


def surroundings() -> Iterator[str]:
    """Why trials could be noticed in this process now: by other ranks of a job, or by other threads."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        yield Message("in a job of several processes")
    if thread := running_thread():
        yield Message("another thread runs, `{name}`", name=thread)


def reasons(trace: Trace, effects: tuple[str, ...]) -> Iterator[str]:
    """Why another run of a step could be noticed, or would take long.

    Args:
        trace: of its first run.
        effects: that this has left.
    """
    yield from surroundings()
    yield from effects
    if trace.not_restored:
        yield Message("not all that the step changed could be put back")
    if trace.seconds > MOST_SECONDS:
        yield Message("the step took {seconds} s", seconds=f"{trace.seconds:.0f}")
