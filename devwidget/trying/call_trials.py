"""A call of a model that a program has made: run again, if somebody asks, to try the edits of what was found of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

from torch import nn

from devwidget.capture.explain.read_error import outermost_call
from devwidget.capture.step.batch import Arguments
from devwidget.capture.step.step import Step
from devwidget.records.explanation import Explanation
from devwidget.records.finding import Finding, Fix
from devwidget.records.trace import Trace
from devwidget.trying.offers import LiveParts, LiveStep, SeenCalls, offer_step
from devwidget.trying.step_trials import heal_step, repeat_step
from devwidget.trying.trials import try_alone

Call = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
"""A module, and what it was called with."""


def offer_explained(told: Explanation, error: BaseException) -> Explanation:
    """An explanation whose edits can be tried on the call of a module that has failed, which its frames still hold."""
    call = outermost_call(error)
    if call is None:
        return told
    live = LiveStep(_live_parts(call), functools.partial(_try_alone, told.findings))
    return dataclasses.replace(told, findings=offer_step(Trace(findings=told.findings), live).findings)


def offer_trials(trace: Trace, calls: SeenCalls, error: BaseException | None) -> Trace:
    """A recorded trace whose edits can be tried on the calls that were seen, that of the exception first."""
    run, failed = functools.partial(_try_alone, trace.findings), None
    if error is not None:
        call = outermost_call(error)
        if call is not None:
            failed = _live_parts(call)
    return calls.offer_trials(trace, run, failed)


def _live_parts(call: Call) -> LiveParts:
    return LiveParts(dict(zip(("model", "args", "kwargs"), call, strict=True)))


def _put_in_place(healed: Trace, findings: Iterable[Finding]) -> Trace:
    """A healed trace in which what was found of the call stands for what the run has found at the same line."""
    waiting, there = list(findings), []
    for each in healed.findings:
        same = next((finding for finding in waiting if _is_same(each, finding)), None)
        if same is None:
            there.append(dataclasses.replace(each, fixes=()))  # only what was asked for is tried
        else:
            waiting.remove(same)
            there.append(same)
    return dataclasses.replace(healed, findings=tuple(there))


def _is_same(a: Finding, b: Finding) -> bool:
    return a.severity == b.severity and _line_of(a) == _line_of(b)


def _line_of(finding: Finding) -> tuple[str, int] | None:
    if finding.fault is None:
        return None
    return finding.fault.file, finding.fault.line


def _try_alone(findings: tuple[Finding, ...], fix: Fix, model: nn.Module, args: Any, kwargs: Any) -> Fix:
    """What `Fix.try_it` does: the forward pass alone, which is not all of a step that trains."""
    step = Step(model, Arguments(args, kwargs))
    healed, left = heal_step(step)
    trace = _put_in_place(healed, findings)
    tried = try_alone(trace, left, step, repeat_step(step), fix)
    trains = any(parameter.requires_grad for parameter in model.parameters())
    if trains and tried.confidence == "sure":
        return dataclasses.replace(tried, confidence="likely")
    return tried
