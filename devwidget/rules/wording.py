"""Phrases that several rules share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from devwidget.records.device import DeviceId
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.trace import Fault, Operand, Trace

_WORD = re.compile(r"[^\W\d]\w*")


def devices_met(fault: Fault) -> tuple[DeviceId, ...]:
    """Return the devices of the misplaced tensors and the target, without numbers and indices that may be on the CPU."""
    met = {operand.device for operand in fault.operands if operand.stray}
    home = {operand.device for operand in fault.operands if operand.device == fault.target}
    return tuple(sorted(met | home))


def name_of(fault: Fault, operand: Operand) -> str:
    """Return a name of the tensor that occurs in the failing line or in the line that created it, else its argument."""
    source = "\n".join(site.text for site in (fault.site, operand.birth) if site is not None)
    if operand.expression and (not source.strip() or _starts_in(operand.expression, source)):
        return f"`{operand.expression}`"
    if operand.source and _starts_in(operand.name, source):
        return f"`{operand.name}`"
    if operand.argument:
        return Message("argument `{argument}` of `{call}`", argument=operand.argument, call=fault.call)
    return Message("the tensor")


def _starts_in(name: str, source: str) -> bool:
    """Whether the first word of a name is in the source, without `self`: `self.layers[0]` starts in `self.layers`."""
    words = words_in(source)
    for word in _WORD.findall(name):
        if word != "self":
            return word in words
    return "self" in words


def kept_name_of(fault: Fault, operand: Operand) -> str:
    """Return the path under which a module holds the tensor, else the result of `name_of`."""
    path = path_of(operand)
    if path:
        return f"`{path}`"
    return name_of(fault, operand)


_MOST_NAMES = 4


def some_names(names: Sequence[str], count: int = 0) -> str:
    """Return the names of up to four things, else the first one and how many more there are, of `count` in all."""
    count = count or len(names)
    if count > min(_MOST_NAMES, len(names)):
        return Message("{first} and {count} more", first=f"`{names[0]}`", count=count - 1)
    return f"`{', '.join(names)}`"


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
        if fault.what in what:
            stray = first_stray(fault)
            if stray is not None:
                yield fault, stray


def first_stray(fault: Fault) -> Operand | None:
    """Return the misplaced tensor, preferring one whose history is known."""
    strays = [o for o in fault.operands if o.stray]
    return min(strays, key=lambda o: (o.birth is None, o.held is None), default=None)


def right_device(fault: Fault) -> str:
    """Return an expression for the right device in the failing frame: a partner's `.device`, else the literal."""
    for operand in fault.operands:
        if operand.expression and not operand.stray and operand.device == fault.target:
            return f"{operand.expression}.device"
    return repr(str(fault.target))


def is_in_replica(trace: Trace, fault: Fault) -> bool:
    """Return whether a replica failed, whose parameters and buffers are wherever its batch is."""
    return fault.in_replica or (bool(trace.replicas) and fault.phase == "forward")


def one_target(trace: Trace, fault: Fault, stray: Operand) -> bool:
    """Return whether one device can be written down: the line, and the tensors of its birth, need no other one."""
    if is_in_replica(trace, fault):
        return False
    for other in trace.faults:
        if other.what != fault.what or other.target in (None, fault.target):
            continue
        if other.site == fault.site or _has_stray_of(other, stray.birth):
            return False
    return True


def _has_stray_of(fault: Fault, birth: Site | None) -> bool:
    return birth is not None and any(operand.stray and operand.birth == birth for operand in fault.operands)
