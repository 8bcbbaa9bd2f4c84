"""Finding: one thing that is wrong, where, why, and what to paste."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from devwidget.records._record import Record
from devwidget.records.site import Site

Severity = Literal["error", "warning", "info"]
Confidence = Literal["sure", "likely", "choice"]


@dataclass(frozen=True, slots=True)
class Fix:
    """A repair.

    Attributes:
        summary: what to do, a phrase.
        code: lines that can be pasted as they are; "" when the cure is not a line of code.
        confidence: `sure`, `likely`, or `choice` (one of several designs).
        verified: the healed run did just this and the fault went away.
    """

    summary: str
    code: str = ""
    confidence: Confidence = "likely"
    verified: bool = False


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """One root cause.

    Attributes:
        kind: a rule's name, such as `wrong-device`.
        severity: `error` (it fails or is wrong), `warning` (it costs time or memory) or `info`.
        module: dotted path of the innermost registered module running; "" for the root, None outside the model.
        headline: the fact, lower case, names in backticks, no full stop.
        why: the rule of PyTorch behind it.
        also: further module paths in which the same cause strikes.
        fault: the user's line that fails, waits or hops.
        birth: the user's line that decided the placement.
        fixes: best first.
        notes: context, one sentence each.
        operands: the tensors that met, for display (`input f32[8, 512] cuda:0`).
        explains: numbers of the trace's faults behind it.
        cause: what two findings of one root cause share; "" for the line of birth, else of fault.
    """

    kind: str
    severity: Severity
    module: str | None
    headline: str
    why: str
    also: tuple[str, ...] = ()
    fault: Site | None = None
    birth: Site | None = None
    fixes: tuple[Fix, ...] = ()
    notes: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    explains: tuple[int, ...] = ()
    cause: str = ""
