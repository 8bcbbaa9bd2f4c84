"""Run the rules: the modules of the folders are the rules, and one root cause gives one finding.

A rule states what must have been recorded before its silence means anything. A rule that crashes is reported.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal, TypeVar

from devwidget.records.errors import error_text
from devwidget.records.finding import SEVERITIES, Finding, Fix, Severity
from devwidget.records.schema.message import Message, listed
from devwidget.records.trace import Trace

if TYPE_CHECKING:
    from devwidget.rules.found import Found

Judged = TypeVar("Judged")


def import_rules(folder: str) -> None:
    """Import every module of a folder, which registers its rules."""
    package = importlib.import_module(folder)
    for module in pkgutil.iter_modules(package.__path__, f"{folder}."):
        importlib.import_module(module.name)


def run_rule(kind: str, check: Callable[[Judged], Iterable[Finding]], judged: Judged) -> tuple[list[Finding], Message | None]:
    """Return the findings of one rule, and the reason if it crashed."""
    try:
        return list(check(judged)), None
    except Exception as error:  # one broken rule must not hide what the others found
        failed = Message("the rule itself failed with {error}", error=error_text(error))
        return [], Message("{kind}: {reason}", kind=kind, reason=failed)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings: errors, then warnings, then hints."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


Need = Literal["operations", "forward", "backward", "optimizer", "replicas", "loaders", "DTensor"]


_MET: dict[Need, tuple[str, Callable[[Trace], bool]]] = {
    "operations": (Message("no operation"), lambda trace: bool(trace.ops or trace.moves or trace.modules)),
    "forward": (Message("no forward pass of a module"), lambda trace: bool(trace.modules) or "forward" in trace.phases),
    "backward": (Message("no backward pass"), lambda trace: "backward" in trace.phases),
    "optimizer": (Message("no optimizer step"), lambda trace: "optimizer" in trace.phases),
    "loaders": ("", lambda trace: bool(trace.loaders)),
    "replicas": (Message("no DataParallel call"), lambda trace: bool(trace.parallel or trace.replicas)),
    "DTensor": ("", lambda trace: any(fault.what == "dtensor" for fault in trace.faults)),
}
"""Need -> its name in messages, "" for what few programs have, and a check whether a trace has it."""


def find_unmet_needs(trace: Trace) -> frozenset[Need]:
    """Return what a trace lacks, for all rules at once, because some checks look at every operator."""
    return frozenset(need for need, (_, met) in _MET.items() if not met(trace))


FOLDERS = ("placement", "transfers", "training", "replicas")


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding.

    Attributes:
        kind: Its name, as in the findings.
        check: Yields the findings for a trace.
        needs: What must have run before no findings means no problem.
        loses_to: Kinds that explain the same fault better.
    """

    kind: str
    check: Callable[[Trace], Iterator[Finding]]
    needs: tuple[Need, ...]
    loses_to: tuple[str, ...] = ()


_rules: dict[str, Rule] = {}
Check = Callable[[Trace], Iterator["Found"]]


def rule(
    kind: str,
    severity: Severity,
    *,
    needs: tuple[Need, ...],
    why: str = "",
    loses_to: tuple[str, ...] = (),
) -> Callable[[Check], Check]:
    """Register a check under the name of its kind.

    Args:
        kind: The name of the kind.
        severity: The severity of its findings, unless `Found.severity` is set.
        needs: As in `Rule`; every rule needs something, at least that an operation ran.
        why: The rule of PyTorch behind it, unless `Found.why` is set.
        loses_to: As in `Rule`.
    """
    from devwidget.rules.found import make_finding  # not loaded by `import devwidget`

    def keep(check: Check) -> Check:
        @functools.wraps(check)
        def find(trace: Trace) -> Iterator[Finding]:
            return (make_finding(kind, severity, why, found) for found in check(trace))

        _rules[kind] = Rule(kind, find, needs, loses_to)
        return check

    return keep


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Return every rule that checks traces, sorted by name."""
    for folder in FOLDERS:
        import_rules(f"devwidget.rules.{folder}")
    return tuple(_rules[kind] for kind in sorted(_rules))


def judge(trace: Trace, rules: Iterable[Rule] | None = None) -> Trace:
    """Return the trace with its findings, worst first.

    Args:
        trace: The recorded step.
        rules: The rules to run; None for all of them.
    """
    chosen = all_rules() if rules is None else tuple(rules)
    unmet_needs = find_unmet_needs(trace)
    found: list[Finding] = []
    checked: list[str] = []
    not_checked = [*trace.not_checked]
    for each in chosen:
        findings, crash = run_rule(each.kind, each.check, trace)
        found += findings
        missing = _lacking(each.kind, each.needs, unmet_needs)
        if crash is not None:
            not_checked.append(crash)
        elif findings or missing is None:  # findings are an answer even if something is missing
            checked.append(each.kind)
        elif missing:
            not_checked.append(missing)
    return dataclasses.replace(trace, findings=_ordered(found, chosen), checked=tuple(checked), not_checked=tuple(not_checked))


def _ordered(found: list[Finding], rules: tuple[Rule, ...]) -> tuple[Finding, ...]:
    """One finding for each root cause, worst first."""
    if not found:  # most traces: do not load the edits
        return ()
    causes = list(_one_per_cause(_without_losers(found, rules)))
    return worst_first(_in_harmony(causes))


@functools.cache
def _lacking(kind: str, needs: tuple[Need, ...], unmet_needs: frozenset[Need]) -> str | None:
    """Why a rule cannot decide; "" for what few programs have, None if it can. Cached, because many traces lack the same."""
    names = [_MET[need][0] for need in needs if need in unmet_needs]
    if not names:
        return None
    if "" in names:
        return ""
    reason = Message("{missing} in this trace", missing=listed(names))
    return Message("{kind}: {reason}", kind=kind, reason=reason)


def _without_losers(found: list[Finding], rules: tuple[Rule, ...]) -> list[Finding]:
    """Drop findings whose faults a more specific kind explains."""
    explained_by: dict[str, set[int]] = {}
    for finding in found:
        explained_by.setdefault(finding.kind, set()).update(finding.explains)
    better_kinds = {rule.kind: rule.loses_to for rule in rules}
    winners = []
    for finding in found:
        better: set[int] = set()
        for kind in better_kinds.get(finding.kind, ()):
            better |= explained_by.get(kind, set())
        if not finding.explains or not better.issuperset(finding.explains):
            winners.append(finding)
    return winners


def _one_per_cause(found: list[Finding]) -> Iterator[Finding]:
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in found:
        groups.setdefault((finding.kind, _cause(finding)), []).append(finding)
    for group in groups.values():
        yield _merged(group)


def _merged(group: list[Finding]) -> Finding:
    """The first finding of a group, with the modules of the others in `also` and their lines in a note."""
    first, *others = group
    also = dict.fromkeys(first.also)
    lines: dict[str, None] = {}
    explains = set(first.explains)
    for other in others:
        if other.module is not None:
            also[other.module] = None
        also.update(dict.fromkeys(other.also))
        explains.update(other.explains)
        if other.fault is not None and other.fault != first.fault:
            lines[str(other.fault)] = None
    notes = first.notes
    if lines:
        notes += (Message("also at {paths}", paths=", ".join(lines)),)
    return dataclasses.replace(
        first,
        fixes=_together(group),
        also=tuple(path for path in also if path != first.module),
        notes=notes,
        explains=tuple(sorted(explains)),
    )


def _cause(finding: Finding) -> object:
    """What two findings of one root cause share: the cause that the rule names, the birth, or the line of the fault."""
    if finding.cause:
        return finding.cause
    if finding.birth is not None:
        return finding.birth.line_id
    if finding.fault is not None:
        return finding.fault.place
    return (finding.module, finding.headline)


def _together(group: list[Finding]) -> tuple[Fix, ...]:
    """The fixes of the first finding, with the edits that the same cause needs at other lines."""
    from devwidget.rules.edits.draft import code_of_edits, merged  # not loaded by `import devwidget`

    fixes = group[0].fixes
    if not fixes or not fixes[0].edits or len(group) == 1:
        return fixes
    first = fixes[0]
    alike = []
    for finding in group:
        if finding.fixes and _verb(finding.fixes[0]) == _verb(first):
            alike.append(finding.fixes[0].edits)
    edits = merged(alike)
    if edits is None or edits == first.edits:
        return fixes
    return (dataclasses.replace(first, edits=edits, code=code_of_edits(edits)), *fixes[1:])


def _verb(fix: Fix) -> list[str]:
    """The first two words of its summary: `move it`, whatever the device is."""
    return fix.summary.split()[:2]


def _in_harmony(found: list[Finding]) -> list[Finding]:
    """Merge first fixes that change the same line in different places."""
    from devwidget.rules.edits.draft import code_of_edits, with_others

    firsts = [finding.fixes[0].edits for finding in found if finding.fixes]
    result = []
    for finding in found:
        if finding.fixes:
            first, *others = finding.fixes
            edits = tuple(with_others(edit, firsts) for edit in first.edits)
            if edits != first.edits:
                first = dataclasses.replace(first, edits=edits, code=code_of_edits(edits))
                finding = dataclasses.replace(finding, fixes=(first, *others))
        result.append(finding)
    return result
