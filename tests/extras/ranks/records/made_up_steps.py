"""Steps that nobody ran: what ranks would have recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from devwidget.extras.ranks.records.traced_steps import TracedStep
from devwidget.records.parallel import UNKNOWN, CollectiveCall, ProcessGroup
from devwidget.records.site import Site

LINE = Site("/home/ada/train.py", 41, "loss.backward()", "train")
KIB = 1024


def world(ranks: int) -> ProcessGroup:
    return ProcessGroup("0", "default_pg", tuple(range(ranks)))


def begun(kind: str, number: int, sequence: int = 1, size: int = KIB, **more: Any) -> CollectiveCall:
    facts = {"group": 0, "module": "up", "phase": "forward", "site": LINE, "by": "FSDP", "peer": UNKNOWN} | more
    return CollectiveCall(kind, sequence=sequence, bytes=size, number=number, **facts)


def step(calls: Sequence[CollectiveCall], *groups: ProcessGroup) -> TracedStep:
    return TracedStep(tuple(calls), groups)


def sharded(ranks: int, *, backward: str = "reduce_scatter") -> TracedStep:
    """What each rank of one FSDP group does: gather before each layer, reduce after backward."""
    gathers = [begun("all_gather", 20), begun("all_gather", 60, 2, module="down")]
    return step([*gathers, begun(backward, 120, 3, 2 * KIB, phase="backward")], world(ranks))
