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
from devwidget.records.site import Phase
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


Need = Literal["operations", "forward", "backward", "optimizer", "replicas", "copy checks"]


def _has_phase(phase: Phase) -> Callable[[Trace], bool]:
    return lambda trace: (
        phase in trace.phases or any(event.phase == phase for events in (trace.ops, trace.moves) for event in events)
    )


_MET: dict[Need, tuple[str, Callable[[Trace], bool]]] = {
    "operations": (Message("no operation"), lambda trace: bool(trace.ops or trace.moves or trace.modules)),
    "forward": (Message("no forward pass of a module"), lambda trace: bool(trace.modules) or "forward" in trace.phases),
    "backward": (Message("no backward pass"), _has_phase("backward")),
    "optimizer": (Message("no optimizer step"), _has_phase("optimizer")),
    "copy checks": (Message("no check of copies between GPUs"), lambda trace: bool(trace.copy_checks)),
    "replicas": (Message("no DataParallel call"), lambda trace: bool(trace.parallel or trace.replicas)),
}
"""Need -> its name in messages, and a check whether a trace has it."""


def find_unmet_needs(trace: Trace) -> frozenset[Need]:
    """Return what a trace lacks, for all rules at once, because some checks look at every operator."""
    return frozenset(need for need, (_, met) in _MET.items() if not met(trace))


def describe_missing(needs: tuple[Need, ...], lacking: frozenset[Need]) -> str:
    """Return `no backward pass and no optimizer step in this trace`; "" if nothing needed is missing."""
    names = [_MET[need][0] for need in needs if need in lacking]
    if names:
        return Message("{missing} in this trace", missing=listed(names))
    return ""


FOLDERS = ("placement", "transfers", "training", "replicas")


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding.

    Attributes:
        kind: Its name, as in the findings.
        check: Yields the findings for a trace.
        needs: What must have run before no findings means no problem.
        loses_to: Kinds that explain the same fault better.
        on_request: Whether to skip the rule silently unless its input was requested, as by `verify_hops=True`.
    """

    kind: str
    check: Callable[[Trace], Iterator[Finding]]
    needs: tuple[Need, ...]
    loses_to: tuple[str, ...] = ()
    on_request: bool = False


_rules: dict[str, Rule] = {}
Check = Callable[[Trace], Iterator["Found"]]


def rule(
    kind: str,
    severity: Severity,
    *,
    needs: tuple[Need, ...],
    why: str = "",
    loses_to: tuple[str, ...] = (),
    on_request: bool = False,
) -> Callable[[Check], Check]:
    """Register a check under the name of its kind.

    Args:
        kind: The name of the kind.
        severity: The severity of its findings, unless `Found.severity` is set.
        needs: As in `Rule`; every rule needs something, at least that an operation ran.
        why: The rule of PyTorch behind it, unless `Found.why` is set.
        loses_to: As in `Rule`.
        on_request: As in `Rule`.
    """
    from devwidget.rules.found import make_finding  # not loaded by `import devwidget`

    def keep(check: Check) -> Check:
        @functools.wraps(check)
        def find(trace: Trace) -> Iterator[Finding]:
            return (make_finding(kind, severity, why, found) for found in check(trace))

        _rules[kind] = Rule(kind, find, needs, loses_to, on_request)
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
    found: list[Finding] = []
    checked, not_checked = [], []
    chosen, unmet_needs = all_rules() if rules is None else tuple(rules), find_unmet_needs(trace)
    for each in chosen:
        told, crash = run_rule(each.kind, each.check, trace)
        if crash is not None:
            not_checked.append(crash)
            continue
        found += told
        # findings are an answer even if something is missing
        if told:
            lacking = None
        else:
            lacking = _lacking(each.kind, each.needs, unmet_needs)
        if lacking and not each.on_request:
            not_checked.append(lacking)
        elif not lacking:
            checked.append(each.kind)
    if found:
        ordered = worst_first(_in_harmony(list(_one_per_cause(_without_losers(found, chosen)))))
    else:
        ordered = ()
    return dataclasses.replace(trace, findings=ordered, checked=tuple(checked), not_checked=(*trace.not_checked, *not_checked))


@functools.cache
def _lacking(kind: str, needs: tuple[Need, ...], unmet_needs: frozenset[Need]) -> Message | None:
    """Why a rule cannot decide; None if it can. Cached, because many traces lack the same."""
    reason = describe_missing(needs, unmet_needs)
    if reason:
        return Message("{kind}: {reason}", kind=kind, reason=reason)
    return None


def _without_losers(found: list[Finding], rules: Iterable[Rule]) -> list[Finding]:
    """Drop findings whose faults a more specific kind explains."""
    loses = {each.kind: each.loses_to for each in rules}

    def lost(finding: Finding) -> bool:
        better = {n for f in found if f.kind in loses.get(finding.kind, ()) for n in f.explains}
        return bool(finding.explains) and better.issuperset(finding.explains)

    return [finding for finding in found if not lost(finding)]


def _one_per_cause(found: list[Finding]) -> Iterator[Finding]:
    """Merge findings of one kind and one cause: the first one stays, the others become `also` and a note."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in found:
        groups.setdefault((finding.kind, _cause(finding)), []).append(finding)
    for first, *others in groups.values():
        modules = dict.fromkeys(m for f in others for m in (f.module, *f.also) if m is not None)
        lines = dict.fromkeys(str(f.fault) for f in others if f.fault is not None and f.fault != first.fault)
        yield dataclasses.replace(
            first,
            fixes=_together([first, *others]),
            also=tuple(m for m in modules if m != first.module),
            notes=(
                *first.notes,
                *((Message("also at {lines}", lines=", ".join(lines)),) if lines else ()),
            ),
            explains=tuple(sorted({n for f in (first, *others) for n in f.explains})),
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
    alike = [f.fixes[0].edits for f in group if f.fixes and f.fixes[0].summary.split()[:2] == fixes[0].summary.split()[:2]]
    edits = merged(alike)
    if edits is None or edits == fixes[0].edits:
        return fixes
    return (dataclasses.replace(fixes[0], edits=edits, code=code_of_edits(edits)), *fixes[1:])


def _in_harmony(found: list[Finding]) -> list[Finding]:
    """Merge first fixes that change the same line in different places."""
    from devwidget.rules.edits.draft import code_of_edits, with_others

    firsts = [f.fixes[0].edits if f.fixes else () for f in found]
    result = []
    for finding, mine in zip(found, firsts, strict=True):
        edits = tuple(with_others(edit, firsts) for edit in mine)
        if edits != mine:
            first = dataclasses.replace(finding.fixes[0], edits=edits, code=code_of_edits(edits))
            finding = dataclasses.replace(finding, fixes=(first, *finding.fixes[1:]))
        result.append(finding)
    return result
