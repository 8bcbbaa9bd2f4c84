"""Decide what the runs of a step with an edit show, compared with the runs without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from devwidget.capture.step.step import Step
from devwidget.capture.tensors import named_tensors
from devwidget.extras.agents.records.evidence import Evidence
from devwidget.records.device import DeviceId
from devwidget.records.finding import Edit, Finding
from devwidget.records.schema.message import Message, in_row
from devwidget.records.trace import Fault, Move, Trace
from devwidget.report.style.units import format_bytes
from devwidget.trying.reference_step import (
    Results,
    Run,
    are_equal,
    cured_moves,
    is_random,
    key_of,
    make_reference,
    modules_that_cut,
)
from devwidget.trying.trials import describe_finding, find_why_not_compared, first_line, new_findings
from devwidget.views.sums import total

_LEAST_MORE = 1024
"""Bytes; a smaller transfer takes as long as an empty one."""


def judge_runs(
    before: Step, edits: Sequence[Edit], runs: Sequence[Run], healed: Sequence[Run], reference: Sequence[Run]
) -> Evidence:
    """Return the evidence of the runs with an edit.

    `healed` are the runs without it, repaired; `reference` the same, on one device if the batch is split.
    """
    was, now = healed[0].trace, runs[0].trace
    evidence = _compare_traces(was, now)
    if reference[0].trace.error:
        error = first_line(reference[0].trace.error)
        reason = Message("the step without the edit fails even when repaired: {error}", error=error)
        return doubt(replace(evidence, not_compared=reason), [reason])
    modules = before.list_modules()
    compared = make_reference(reference, modules, bool(modules_that_cut(modules)), cured_moves(was))
    draws = is_random(edits)
    failure = compared.find_difference(runs, is_random=draws) or _find_late_failure(runs, healed)
    if failure:
        return replace(evidence, verdict="fails", reasons=(failure,))
    not_compared = find_why_not_compared(compared, runs)
    if not_compared and all(_agree(a.results, b.results) for a, b in zip(healed, runs, strict=False)):
        not_compared = ""  # statistics of each part of a split batch differ from one device, not from the same split
    if draws and not not_compared and compared.find_difference(runs, is_random=False):
        not_compared = Message("the edited lines draw random numbers")
    evidence = replace(evidence, gradients=len(runs[0].results.gradients), not_compared=not_compared)
    if runs[-1].trace.error:
        error = first_line(runs[-1].trace.error)
        evidence = doubt(evidence, [Message("the second step fails with the edit and without it: {error}", error=error)])
    return doubt(evidence, [*_list_moved(before, was, now), *_list_copies(was, now), *_list_doubts(evidence)])


def _agree(one: Results, other: Results) -> bool:
    """Return whether two steps gave equal outputs, buffers and gradients, each where the other did."""
    if one.buffers.keys() != other.buffers.keys() or one.gradients.keys() != other.gradients.keys():
        return False
    left, right = (
        (*each.output, *(each.buffers[name] for name in one.buffers), *(each.gradients[name] for name in one.gradients))
        for each in (one, other)
    )
    return are_equal(left, right, ())


def judge_failure(error: str, was: Trace, repaired: Trace) -> Evidence:
    """Return the evidence of a step that raises with the edit, of that step repaired, and of the one without it."""
    found = _compare_traces(was, repaired)
    reasons: list[str] = [Message("the step fails: {error}", error=first_line(error))]
    if found.fixed and found.left and not found.new:
        kinds = in_row(dict.fromkeys(map(describe_finding, found.left)))
        reasons.append(Message("the edit fixes a part, and leaves {findings}", findings=kinds))
    return replace(found, verdict="fails", reasons=tuple(reasons))


def judge_elsewhere(evidence: Evidence, excused: Sequence[Finding], now: Trace, device: str) -> Evidence:
    """Add what the step with the edit shows on another GPU, repaired. The edit is not to blame for the excused findings."""
    new = _first_error(now, excused)
    if not new:
        return evidence
    return doubt(evidence, [Message("with model and batch on {device} the step fails: {finding}", device=device, finding=new)])


def doubt(evidence: Evidence, reasons: Iterable[str]) -> Evidence:
    """Return the evidence with what speaks against an edit with which the step runs."""
    found = (*evidence.reasons, *reasons)
    return replace(evidence, verdict="doubtful" if found else "works", reasons=found)


def _compare_traces(was: Trace, now: Trace) -> Evidence:
    fixed = _list_fixed(was, now)
    kept = [each for each in was.findings if each not in fixed]
    return Evidence(
        "works",
        fixed=fixed,
        new=tuple(new_findings(now, was.findings)),
        left=tuple(each for each in kept if each.severity != "info"),
        copied_before=total(was.moves, "all_bytes"),
        copied_after=total(now.moves, "all_bytes"),
    )


def _list_copies(was: Trace, now: Trace) -> Iterator[str]:
    """Yield what the step copies more than before. A copy to the host is one more even where a repair made the same."""
    more = total(now.moves, "all_bytes") - total(was.moves, "all_bytes")
    if more >= _LEAST_MORE:
        yield Message("each step copies {size} more between devices", size=format_bytes(more))
    to_host = total(_list_read(now), "all_bytes") - total(_list_read(was), "all_bytes")
    if to_host > 0 and not any(map(_needs_host, was.faults)):
        yield Message("each step copies {size} more to the host, which waits for it", size=format_bytes(to_host))


def _list_read(trace: Trace) -> list[Move]:
    """Return the copies to the host that the code asks for."""
    from_gpus = [move for move in trace.moves if move.source.kind != "cpu"]
    to_host = [move for move in from_gpus if move.target.kind == "cpu"]
    return [move for move in to_host if move.cause != "healed"]


def _needs_host(fault: Fault) -> bool:
    """Return whether a call takes tensors of the host only, such as `Tensor.numpy`."""
    is_host = fault.target is not None and fault.target.kind == "cpu"
    return is_host and all(operand.device.kind != "cpu" for operand in fault.operands)


def _list_fixed(was: Trace, now: Trace) -> tuple[Finding, ...]:
    """Return the findings that are gone. Of several with one kind and line, those with the same headline stay."""
    kept, counts = {each.headline for each in now.findings}, Counter(map(key_of, now.findings))
    fixed = []
    for each in sorted(was.findings, key=lambda finding: finding.headline not in kept):
        counts[key_of(each)] -= 1
        if counts[key_of(each)] < 0 and each.severity != "info":
            fixed.append(each)
    return tuple(fixed)


def _find_late_failure(runs: Sequence[Run], healed: Sequence[Run]) -> str:
    last = runs[-1].trace
    if healed[-1].trace.error:
        return ""  # the second step fails without the edit too
    if last.error:
        return Message("the second step fails: {error}", error=first_line(last.error))
    new = _first_error(last, [finding for run in healed for finding in run.trace.findings])
    if new:
        return Message("the second step has {finding}", finding=new)
    return ""


def _first_error(trace: Trace, known: Iterable[Finding]) -> str:
    for finding in new_findings(trace, known):
        if finding.severity == "error":
            return describe_finding(finding)
    return ""


def _list_doubts(evidence: Evidence) -> Iterator[str]:
    for each in evidence.new:
        yield Message("the step has {finding}", finding=describe_finding(each))
    moved = [each for each in evidence.fixed if each.kind == "unregistered-tensor"]
    if moved and not evidence.new and evidence.copied_after >= evidence.copied_before > 0:
        yield Message("each step still copies {size} between devices", size=format_bytes(evidence.copied_after))
    if evidence.not_compared:
        yield Message("values and gradients were not compared: {reason}", reason=evidence.not_compared)
    if evidence.left and not evidence.fixed:
        yield Message("the step still has {finding}", finding=describe_finding(evidence.left[0]))


def _list_moved(before: Step, was: Trace, now: Trace) -> Iterator[str]:
    """Yield the innermost modules with parameters that compute on another device: where parameters are is not for a fix."""
    owners = {path.rpartition(".")[0] for path, _ in named_tensors(before.model, "_parameters")}
    known: dict[str, set[DeviceId]] = {}
    for event in was.modules:  # replicas of a module have its path
        known.setdefault(event.path, set()).update(event.outputs)
    for event in now.modules:
        right = known.get(event.path, set())
        other = [device for device in event.outputs if device not in right]
        if not right or not other or event.path not in owners or any(path.startswith(f"{event.path}.") for path in known):
            continue
        facts = {"device": other[0], "right": in_row(sorted(map(str, right)))}
        yield Message("`{module}` computes on {device} instead of {right}", module=event.path or event.class_name, **facts)
