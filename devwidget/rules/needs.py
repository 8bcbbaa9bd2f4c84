"""What must have been recorded before the silence of a rule means anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from devwidget.records.schema.message import Message, listed
from devwidget.records.site import Phase
from devwidget.records.trace import Trace

Need = Literal["operations", "forward", "backward", "optimizer", "replicas", "copy checks"]


def _ran(phase: Phase) -> Callable[[Trace], bool]:
    return lambda trace: any(event.phase == phase for events in (trace.ops, trace.moves) for event in events)


_MET: dict[Need, tuple[str, Callable[[Trace], bool]]] = {
    "operations": (Message("no operation"), lambda trace: bool(trace.ops or trace.moves or trace.modules)),
    "forward": (Message("no forward pass of a module"), lambda trace: bool(trace.modules)),
    "backward": (Message("no backward pass"), _ran("backward")),
    "optimizer": (Message("no optimizer step"), _ran("optimizer")),
    "copy checks": (Message("no check of copies between GPUs"), lambda trace: bool(trace.copy_checks)),
    "replicas": (Message("no call of DataParallel"), lambda trace: bool(trace.parallel or trace.replicas)),
}
"""Need -> what it is called where it is missing, and whether a trace has it."""


def unmet(trace: Trace) -> frozenset[Need]:
    """What a trace lacks; asked once for all rules, because an answer may take a look at every operator."""
    return frozenset(need for need, (_, met) in _MET.items() if not met(trace))


def missing(needs: tuple[Need, ...], lacking: frozenset[Need]) -> str:
    """`no backward pass and no optimizer step in this trace`; "" if nothing that is needed is lacking."""
    names = [_MET[need][0] for need in needs if need in lacking]
    return Message("{missing} in this trace", missing=listed(names)) if names else ""
