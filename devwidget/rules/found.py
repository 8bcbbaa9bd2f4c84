"""What a rule finds, and the finding made from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Protocol

from devwidget.records.finding import Finding, Fix, Severity
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.trace import Fault, Operand
from devwidget.rules.edits.draft import chosen


class Event(Protocol):
    """A sync, a transfer or a check of a copy: anything with a line and the module that ran there."""

    @property
    def site(self) -> Site | None:
        """The user's line."""

    @property
    def module(self) -> str | None:
        """The path of the module."""


@dataclasses.dataclass(frozen=True, slots=True)
class SiteInModule:
    """A line and the module that ran there, for findings without an event in the trace."""

    site: Site | None
    module: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """One thing that is wrong.

    Attributes:
        at: The fault, the event, or only the line if no module runs there.
        headline: The fact, as in `Finding`.
        why: The reason, if it differs from the rule's.
        birth: The line that created or moved the tensor.
        birth_moves: Whether that line moves the tensor; needed only if the operands of the fault do not say so.
        fixes: Possible fixes, best first; None for fixes that could not be written.
        notes: Context, one sentence each.
        no_edit: A note that says why none of the fixes is an edit.
        operands: The tensors to show; None for the operands of the fault.
        explains: Numbers of further faults with this cause.
        cause: What findings of one root cause share; "" for the birth, else the line of the fault.
        severity: The severity, if it differs from the rule's.
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
    cause: str = ""
    severity: Severity | None = None


def make_finding(kind: str, severity: Severity, why: str, found: Found) -> Finding:
    """Return the finding for what a rule found, with the kind, severity and reason of the rule."""
    at = found.at
    fault = at if isinstance(at, Fault) else None
    fixes = chosen(found.fixes, fault)
    notes = tuple(found.notes)
    if found.no_edit is not None and not any(each.edits for each in fixes):
        notes += (found.no_edit,)
    operands, explains = found.operands, tuple(found.explains)
    if fault is not None:
        operands = fault.operands if operands is None else operands
        explains = (fault.number, *explains)
    if at is None or isinstance(at, Site):
        site, module = at, None
    else:
        site, module = at.site, at.module
    return Finding(
        kind=kind,
        severity=found.severity or severity,
        module=module,
        headline=found.headline,
        why=found.why or why,
        fault=site,
        birth=found.birth,
        birth_moves=_birth_moves(found),
        fixes=fixes,
        notes=notes,
        operands=tuple(dict.fromkeys(map(str, operands or ()))),
        explains=explains,
        cause=found.cause,
    )


def _birth_moves(found: Found) -> bool:
    if found.birth_moves or not isinstance(found.at, Fault):
        return found.birth_moves
    if found.at.what in ("dtype", "kernel", "promotion"):  # a cast
        return False
    return any(operand.from_move and operand.birth == found.birth for operand in found.at.operands)
