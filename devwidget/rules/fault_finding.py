"""The finding that explains one fault."""

from __future__ import annotations

from collections.abc import Iterable

from devwidget.records.finding import Finding, Fix, Severity
from devwidget.records.site import Site
from devwidget.records.trace import Fault, Operand
from devwidget.rules.repairs.edits import chosen
from devwidget.rules.wording import described


def finding_of(
    fault: Fault,
    kind: str,
    *,
    headline: str,
    why: str,
    fixes: Iterable[Fix | None],
    severity: Severity = "error",
    birth: Site | None = None,
    operands: Iterable[Operand] | None = None,
    notes: tuple[str, ...] = (),
    cause: str = "",
) -> Finding:
    """A finding at the line and in the module of a fault; it shows the tensors of the fault, or these `operands`."""
    return Finding(
        kind=kind,
        severity=severity,
        module=fault.module,
        headline=headline,
        why=why,
        fault=fault.site,
        birth=birth,
        fixes=chosen(fixes, fault),
        notes=notes,
        operands=described(fault.operands if operands is None else operands),
        explains=(fault.number,),
        cause=cause,
    )
