"""Offer to run a module call of the program again, to verify the fixes of its findings."""

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
from devwidget.trying.reference_step import key_of
from devwidget.trying.step_trials import heal_step, repeat_step
from devwidget.trying.trials import has_edits_of, try_alone

Call = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
"""A module, and what it was called with."""


def offer_explained(told: Explanation, error: BaseException) -> Explanation:
    """Return the explanation with fixes that can be verified on the module call that failed, if its frames still hold it."""
    call = outermost_call(error)
    if call is None:
        return told
    live = LiveStep(_live_parts(call), functools.partial(_try_alone, told.findings))
    return dataclasses.replace(told, findings=offer_step(Trace(findings=told.findings), live).findings)


def offer_trials(trace: Trace, calls: SeenCalls, error: BaseException | None) -> Trace:
    """Return the trace with fixes that can be verified on the recorded calls, starting with the one that raised `error`."""
    run, failed = functools.partial(_try_alone, trace.findings), None
    if error is not None:
        call = outermost_call(error)
        if call is not None:
            failed = _live_parts(call)
    return calls.offer_trials(trace, run, failed)


def _live_parts(call: Call) -> LiveParts:
    return LiveParts(dict(zip(("model", "args", "kwargs"), call, strict=True)))


def _offer_fix(healed: Trace, findings: Iterable[Finding], fix: Fix) -> Trace:
    """Return the trace of a repaired call with one fix alone, at the finding with the line that the fix is for."""
    lines = {key_of(finding)[1:] for finding in findings if has_edits_of(finding, fix)}
    found = []
    for finding in healed.findings:
        fixes = (fix,) if key_of(finding)[1:] in lines else ()
        found.append(dataclasses.replace(finding, fixes=fixes))
    return dataclasses.replace(healed, findings=tuple(found))


def _try_alone(findings: tuple[Finding, ...], fix: Fix, model: nn.Module, args: Any, kwargs: Any) -> Fix:
    """Verify a fix on the forward pass alone. A step that trains does more, so its fixes are at most likely."""
    step = Step(model, Arguments(args, kwargs))
    healed, left = heal_step(step)
    tried = try_alone(_offer_fix(healed, findings, fix), left, step, repeat_step(step), fix)
    trains = any(parameter.requires_grad for parameter in model.parameters())
    if trains and tried.confidence == "sure":
        return dataclasses.replace(tried, confidence="likely")
    return tried
