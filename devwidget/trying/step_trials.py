"""Run the steps of trials, and decide which trials a trace gets."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, Literal

from torch import nn

from devwidget.capture.explain.error_context import ModuleCalled
from devwidget.capture.explain.read_error import outermost_call
from devwidget.capture.restore import SavedState
from devwidget.capture.step.batch import Arguments, make_arguments
from devwidget.capture.step.step import Step
from devwidget.recording import StepRecording, record_step, run_phases
from devwidget.records.explanation import Explanation
from devwidget.records.finding import Finding, Fix
from devwidget.records.trace import Trace
from devwidget.rules.edits.draft import without_fixes
from devwidget.trying.offers import LiveParts, SeenCalls, mark_untried, offer_step
from devwidget.trying.reference_step import Results, Run, key_of, results_of
from devwidget.trying.side_effects import Inside, reasons_against_trial, silence_trial
from devwidget.trying.trials import Again, has_edits_of, try_alone, try_fixes

Verify = Literal["auto"] | bool
"""Whether fixes are verified: `"auto"` if that is harmless, else always or never."""


class TrialRecording(StepRecording):
    """A step that runs for a trial: its findings need no fixes, and its memory is not recorded."""

    _watches_memory = False

    def _judged(self) -> Trace:
        with without_fixes():
            return super()._judged()


def repeat_step(step: Step) -> Again:
    """Return a function that runs a step for a trial, and a second time if that may give something else."""

    def again(heal: bool, inputs: Callable[[], Arguments], inside: Inside, twice: bool) -> list[Run]:
        first = TrialRecording(heal=heal, allow=step.allow)
        left: list[Results] = []
        traces: list[Trace] = []

        def then(given: Arguments, seen: dict[str, Any], kept: SavedState) -> None:
            changed = kept.list_changed()
            left.append(results_of(seen, step.model, changed))
            if not first.trace.error and (twice or changed is None or changed):
                seen.clear()
                second = TrialRecording(heal=heal, allow=step.allow)
                run_phases(dataclasses.replace(step, inputs=given), second, None, seen, inside)
                left.append(results_of(seen, step.model, None))
                traces.append(second.trace)

        trace, _ = record_step(step, inputs, first, restore=True, inside=inside, then=then)
        return [Run(each, results) for each, results in zip((trace, *traces), left, strict=True)]

    return again


def heal_step(step: Step, progress: Callable[[str], None] | None = None) -> tuple[Trace, Results | None]:
    """Run a step with each fault repaired; return its trace and its results."""
    recording = StepRecording(heal=True, allow=step.allow)
    with silence_trial() as own:
        found, _ = record_step(
            step,
            lambda: step.inputs,
            recording,
            progress,
            restore=True,
            inside=own.inside,
            then=recording.keep_results,
        )
    return dataclasses.replace(found, step_runs=1), recording.left


def verify_fixes(found: Trace, left: Results | None, step: Step, effects: Iterable[str], verify: Verify) -> Trace:
    """Return the trace with its fixes verified if that is harmless or asked for, else with the reason why not."""
    why = tuple(reasons_against_trial(found, effects))
    if why and verify != True:  # noqa: E712  "auto" is true too
        return mark_untried(found, why[0])
    found = try_fixes(found, left, step, repeat_step(step), is_asked=verify is True)
    return dataclasses.replace(found, noticed=why)


def try_fix(
    fix: Fix,
    model: nn.Module,
    batch: Any,
    *,
    loss_fn: Callable[..., Any] | None = None,
    target: Any = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Fix:
    """Verify one fix for `Fix.try_it`. The arguments are the ones of `trace` and `Step`."""
    inputs = make_arguments(model, batch, target=target, loss_fn=loss_fn)
    step = Step(model, inputs, loss_fn, **options)
    found, left = heal_step(step, progress)
    return try_alone(found, left, step, repeat_step(step), fix)


# Module calls of the program.


def offer_explained(told: Explanation, error: BaseException) -> Explanation:
    """Return the explanation with fixes that can be verified on the module call that failed, if its frames still hold it."""
    call = outermost_call(error)
    if call is None:
        return told
    attempt = _live_parts(call).make_attempt(functools.partial(_try_alone, told.findings))
    return dataclasses.replace(told, findings=offer_step(Trace(findings=told.findings), attempt).findings)


def offer_trials(trace: Trace, calls: SeenCalls, error: BaseException | None) -> Trace:
    """Return the trace with fixes that can be verified on the recorded calls, starting with the one that raised `error`."""
    run, failed = functools.partial(_try_alone, trace.findings), None
    if error is not None:
        call = outermost_call(error)
        if call is not None:
            failed = _live_parts(call)
    return calls.offer_trials(trace, run, failed)


def _live_parts(call: ModuleCalled) -> LiveParts:
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
