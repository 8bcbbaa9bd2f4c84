"""Running the rules: the folders are the list, one root cause gives one finding, and a crash of one rule is shown.

A rule says what must have been recorded before its silence means anything.
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
    """What one rule found, and why it could not be asked."""
    try:
        return list(check(judged)), None
    except Exception as error:  # one broken rule must not hide what the others found
        failed = Message("the rule itself failed with {error}", error=error_text(error))
        return [], Message("{kind}: {reason}", kind=kind, reason=failed)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors, then warnings, then hints."""
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
"""Need -> what it is called where it is missing, and whether a trace has it."""


def find_unmet_needs(trace: Trace) -> frozenset[Need]:
    """What a trace lacks; asked once for all rules, because an answer may take a look at every operator."""
    return frozenset(need for need, (_, met) in _MET.items() if not met(trace))


def describe_missing(needs: tuple[Need, ...], lacking: frozenset[Need]) -> str:
    """`no backward pass and no optimizer step in this trace`; "" if nothing that is needed is lacking."""
    names = [_MET[need][0] for need in needs if need in lacking]
    if names:
        return Message("{missing} in this trace", missing=listed(names))
    return ""


FOLDERS = ("placement", "transfers", "training", "replicas")


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding.

    Attributes:
        kind: its name, as in the findings.
        check: yields findings for a trace.
        needs: what must have run before its silence is an answer.
        loses_to: kinds that explain the same fault better.
        on_request: nobody misses its answer where what it needs was not asked for.
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
    """Register a check under the name of its kind; what it finds gets the severity and the reason of the rule.

    Args:
        kind: the name of the kind.
        severity: of what it finds, unless that has one of its own.
        needs: as in `Rule`; every rule needs something, if only that anything ran.
        why: the rule of PyTorch behind it, unless what is found has one of its own.
        loses_to: as in `Rule`.
        on_request: as in `Rule`.
    """
    from devwidget.rules.found import make_finding  # with the rules, not with `import devwidget`

    def keep(check: Check) -> Check:
        @functools.wraps(check)
        def find(trace: Trace) -> Iterator[Finding]:
            return (make_finding(kind, severity, why, found) for found in check(trace))

        _rules[kind] = Rule(kind, find, needs, loses_to, on_request)
        return check

    return keep


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule of the folders that judge traces, by name."""
    for folder in FOLDERS:
        import_rules(f"devwidget.rules.{folder}")
    return tuple(_rules[kind] for kind in sorted(_rules))


def judge(trace: Trace, rules: Iterable[Rule] | None = None) -> Trace:
    """The trace with its findings, worst first."""
    found: list[Finding] = []
    checked, not_checked = [], []
    chosen, unmet_needs = all_rules() if rules is None else tuple(rules), find_unmet_needs(trace)
    for each in chosen:
        told, crash = run_rule(each.kind, each.check, trace)
        if crash is not None:
            not_checked.append(crash)
            continue
        found += told
        # what was found is an answer in any case
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
    """Why a rule cannot decide; None if it can. The same words for every trace that lacks the same."""
    reason = describe_missing(needs, unmet_needs)
    if reason:
        return Message("{kind}: {reason}", kind=kind, reason=reason)
    return None


def _without_losers(found: list[Finding], rules: Iterable[Rule]) -> list[Finding]:
    """Drop a finding whose faults a more specific kind explains."""
    loses = {each.kind: each.loses_to for each in rules}

    def lost(finding: Finding) -> bool:
        better = {n for f in found if f.kind in loses.get(finding.kind, ()) for n in f.explains}
        return bool(finding.explains) and better.issuperset(finding.explains)

    return [finding for finding in found if not lost(finding)]


def _one_per_cause(found: list[Finding]) -> Iterator[Finding]:
    """Merge findings of one kind and one birth; the first one speaks, the others become `also` and notes."""
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
    """What two findings of one root cause share: what the rule says, the line of birth, else the line of fault."""
    if finding.cause:
        return finding.cause
    if finding.birth is not None:
        return finding.birth.line_id
    if finding.fault is not None:
        return finding.fault.place
    return (finding.module, finding.headline)


def _together(group: list[Finding]) -> tuple[Fix, ...]:
    """The fixes of the first, its edits with those that the same cause needs at other lines."""
    from devwidget.rules.edits.draft import code_of_edits, merged  # with the rules, not with `import devwidget`

    fixes = group[0].fixes
    if not fixes or not fixes[0].edits or len(group) == 1:
        return fixes
    alike = [f.fixes[0].edits for f in group if f.fixes and f.fixes[0].summary.split()[:2] == fixes[0].summary.split()[:2]]
    edits = merged(alike)
    if edits is None or edits == fixes[0].edits:
        return fixes
    return (dataclasses.replace(fixes[0], edits=edits, code=code_of_edits(edits)), *fixes[1:])


def _in_harmony(found: list[Finding]) -> list[Finding]:
    """First fixes that change the same line in different places become edits that do both."""
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
