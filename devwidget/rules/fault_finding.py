"""The finding that explains one fault."""

from __future__ import annotations

from collections.abc import Iterable

from devwidget.records.finding import Claim, Finding, Fix, Severity
from devwidget.records.site import Site
from devwidget.records.trace import Fault, Operand
from devwidget.rules.claim_words import words_of
from devwidget.rules.repairs.edits import chosen
from devwidget.rules.wording import described


def finding_of(
    fault: Fault,
    kind: str,
    *,
    headline: Claim | str,
    why: str,
    fixes: Iterable[Fix | None],
    severity: Severity = "error",
    birth: Site | None = None,
    operands: Iterable[Operand] | None = None,
    notes: tuple[Claim | str, ...] = (),
    cause: str = "",
) -> Finding:
    """A finding at the line and in the module of a fault; it shows the tensors of the fault, or these `operands`."""
    said = (headline, *notes)
    return Finding(
        kind=kind,
        severity=severity,
        module=fault.module,
        headline=_write_claim(headline),
        why=why,
        fault=fault.site,
        birth=birth,
        fixes=chosen(fixes, fault),
        notes=tuple(map(_write_claim, notes)),
        operands=described(fault.operands if operands is None else operands),
        explains=(fault.number,),
        cause=cause,
        claims=tuple(each for each in said if isinstance(each, Claim)),
    )


def _write_claim(said: Claim | str) -> str:
    return words_of(said) if isinstance(said, Claim) else said
