"""Phrases that several rules share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from devwidget.records.device import DeviceId
from devwidget.records.schema.message import Message
from devwidget.records.trace import Fault, Operand, Trace

_WORD = re.compile(r"[^\W\d]\w*")


def shape_of(operand: Operand) -> str:
    """Return `float32[8, 512]`."""
    return f"{operand.dtype}[{', '.join(map(str, operand.shape))}]"


def described(operands: Iterable[Operand]) -> tuple[str, ...]:
    """Return `h0 float32[1, 3, 7] cpu` for each operand, without duplicates; a freed tensor has no shape."""
    shapes = ((o, f" {shape_of(o)}" if o.dtype else "") for o in operands)
    return tuple(dict.fromkeys(f"{o.name}{shape} {o.device}" for o, shape in shapes))


def devices_met(fault: Fault) -> tuple[DeviceId, ...]:
    """Return the devices of the misplaced tensors and the target, without numbers and indices that may be on the CPU."""
    strays = {operand.device for operand in fault.operands if operand.stray}
    return tuple(sorted(strays | {operand.device for operand in fault.operands if operand.device == fault.target}))


def name_of(fault: Fault, operand: Operand) -> str:
    """Return a name of the tensor that occurs in the failing line or in the line that created it, else its argument."""
    lines = [site.text for site in (fault.site, operand.birth) if site is not None and site.text]
    known_as = (operand.expression, operand.name if operand.source else "")
    if not lines and operand.expression:
        return f"`{operand.expression}`"
    for name in known_as:
        if name and any(stands_in(name, line) for line in lines):
            return f"`{name}`"
    if operand.argument:
        return Message("argument `{argument}` of `{call}`", argument=operand.argument, call=fault.call)
    return Message("the tensor")


def kept_name_of(fault: Fault, operand: Operand) -> str:
    """Return the path under which a module holds the tensor, else the result of `name_of`."""
    path = path_of(operand)
    if path:
        return f"`{path}`"
    return name_of(fault, operand)


def stands_in(name: str, text: str) -> bool:
    """Return whether a text contains the start of a name: `self.layers[0]` in `self.layers`."""
    first = next((word for word in _WORD.findall(name) if word != "self"), "self")
    return first in words_in(text)


def words_in(text: str) -> set[str]:
    """Return the names and keywords of a piece of source."""
    return set(_WORD.findall(text))


def path_of(operand: Operand) -> str:
    """Return the path under which a module or namespace holds a tensor; "" if none does."""
    held = operand.held
    if held is None:
        return ""
    return f"{held.module or ''}.{held.name}".strip(".")


def strays_in(trace: Trace, *what: str) -> Iterator[tuple[Fault, Operand]]:
    """Yield the faults of some families that have a misplaced tensor, each with that tensor."""
    for fault in trace.faults:
        stray = first_stray(fault) if fault.what in what else None
        if stray is not None:
            yield fault, stray


def first_stray(fault: Fault) -> Operand | None:
    """Return the misplaced tensor, preferring one whose history is known."""
    strays = [o for o in fault.operands if o.stray]
    return min(strays, key=lambda o: (o.birth is None, o.held is None), default=None)


def right_device(fault: Fault) -> str:
    """Return an expression for the right device in the failing frame: a partner's `.device`, else the literal."""
    partner = next((o.expression for o in fault.operands if not o.stray and o.device == fault.target and o.expression), "")
    if partner:
        return f"{partner}.device"
    return repr(str(fault.target))


def one_target(trace: Trace, fault: Fault, stray: Operand) -> bool:
    """Return whether one device can be written down: the line, and the tensors of its birth, need no other one."""
    wanted = {fault.target}
    for other in trace.faults:
        births = [o.birth for o in other.operands if o.stray and o.birth is not None]
        if other.what == fault.what and other.target is not None and (other.site == fault.site or stray.birth in births):
            wanted.add(other.target)
    in_replica = (trace.replicas and fault.phase == "forward") or fault.in_replica
    return len(wanted) == 1 and not in_replica
