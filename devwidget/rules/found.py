"""What a rule finds, and the finding that it becomes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Protocol

from devwidget.records.finding import Finding, Fix, Severity
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.trace import Fault, Operand
from devwidget.rules.edits.draft import chosen, without_edit
from devwidget.rules.wording import described


class Event(Protocol):
    """A wait, a move or a check of a copy: it has a line, and the module that was running."""

    @property
    def site(self) -> Site | None:
        """The user's line."""

    @property
    def module(self) -> str | None:
        """The path of the module."""


@dataclasses.dataclass(frozen=True, slots=True)
class SiteInModule:
    """A line and the module that was running there, where no event of the trace stands for both."""

    site: Site | None
    module: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """One thing that is wrong.

    Attributes:
        at: the fault, the event, or the line alone where no module runs.
        headline: the fact, as in `Finding`.
        why: if it is another one than the rule's.
        birth: the line that created or moved the tensor.
        birth_moves: True if that line moves it, though it is the birth of none of the operands of a fault.
        fixes: those that could be made, best first; None for the others.
        notes: context, one sentence each.
        no_edit: the note that says why none of the fixes is an edit.
        operands: the tensors that are shown; None for those of the fault.
        explains: numbers of further faults behind it.
        also: further modules in which the same cause strikes.
        cause: what two of one root cause share; "" for the line of birth, else of fault.
        severity: if it is another one than the rule's.
    """

    at: Fault | Event | Site | None
    headline: str
    why: str = ""
    birth: Site | None = None
    birth_moves: bool = False
    fixes: Iterable[Fix | None] = ()
    notes: Iterable[str] = ()
    no_edit: Message | None = None
    operands: Iterable[Operand] | None = None
    explains: Iterable[int] = ()
    also: Iterable[str | None] = ()
    cause: str = ""
    severity: Severity | None = None


def make_finding(kind: str, severity: Severity, why: str, found: Found) -> Finding:
    """The finding of what a rule has found, with what is known of the rule."""
    at = found.at
    fault = at if isinstance(at, Fault) else None
    site, module = (at, None) if at is None or isinstance(at, Site) else (at.site, at.module)
    fixes = chosen(found.fixes, fault)
    notes = tuple(found.notes)
    if found.no_edit is not None:
        notes += without_edit(fixes, found.no_edit)
    operands = found.operands
    if operands is None:
        operands = fault.operands if fault is not None else ()
    return Finding(
        kind=kind,
        severity=found.severity or severity,
        module=module,
        headline=found.headline,
        why=found.why or why,
        also=tuple(each for each in found.also if each is not None),
        fault=site,
        birth=found.birth,
        birth_moves=_birth_moves(found),
        fixes=fixes,
        notes=notes,
        operands=described(operands),
        explains=(*((fault.number,) if fault is not None else ()), *found.explains),
        cause=found.cause,
    )


def _birth_moves(found: Found) -> bool:
    if found.birth_moves or not isinstance(found.at, Fault):
        return found.birth_moves
    return any(operand.from_move and operand.birth == found.birth for operand in found.at.operands)
