"""Phrases that several rules share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from devwidget.records.schema.message import listed
from devwidget.records.trace import Fault, Operand, Trace


def shape_of(operand: Operand) -> str:
    """`float32[8, 512]`."""
    return f"{operand.dtype}[{', '.join(map(str, operand.shape))}]"


def described(operands: Iterable[Operand]) -> tuple[str, ...]:
    """`h0 float32[1, 3, 7] cpu`, each once; of what is gone no shape is known."""
    shapes = ((o, f" {shape_of(o)}" if o.dtype else "") for o in operands)
    return tuple(dict.fromkeys(f"{o.name}{shape} {o.device}" for o, shape in shapes))


def devices_of(fault: Fault) -> str:
    """`cpu and cuda:0`."""
    return listed(sorted({str(o.device) for o in fault.operands}))


def strays_in(trace: Trace, *what: str) -> Iterator[tuple[Fault, Operand]]:
    """The faults of some families that have a tensor in the wrong place, each with that tensor."""
    for fault in trace.faults:
        stray = first_stray(fault) if fault.what in what else None
        if stray is not None:
            yield fault, stray


def first_stray(fault: Fault) -> Operand | None:
    """The tensor in the wrong place; the one whose story is known before one without."""
    strays = [o for o in fault.operands if o.stray]
    return min(strays, key=lambda o: (o.birth is None, o.held is None), default=None)


def right_device(fault: Fault) -> str:
    """An expression for the right device in the failing frame: a partner's `.device`, else the literal."""
    partner = next((o.expression for o in fault.operands if not o.stray and o.device == fault.target and o.expression), "")
    return f"{partner}.device" if partner else repr(str(fault.target))


def one_target(trace: Trace, fault: Fault, stray: Operand) -> bool:
    """False where the same line, or a tensor of the same birth, is wanted on several devices: none can be written down."""
    wanted = {fault.target}
    for other in trace.faults:
        births = [o.birth for o in other.operands if o.stray and o.birth is not None]
        if other.what == fault.what and other.target is not None and (other.site == fault.site or stray.birth in births):
            wanted.add(other.target)
    in_replica = (trace.replicas and fault.phase == "forward") or "replica" in dict(fault.facts)
    return len(wanted) == 1 and not in_replica
