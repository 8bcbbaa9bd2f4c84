"""Run the steps of trials, and decide which trials a trace gets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Literal

from torch import nn

from devwidget.capture.restore import SavedState
from devwidget.capture.step.batch import Arguments, make_arguments
from devwidget.capture.step.step import Step
from devwidget.recording import StepRecording, record_step, run_phases
from devwidget.records.finding import Fix
from devwidget.records.trace import Trace
from devwidget.rules.edits.draft import without_fixes
from devwidget.trying.offers import mark_untried
from devwidget.trying.reference_step import Results, Run, results_of
from devwidget.trying.side_effects import Inside, reasons_against_trial, silence_trial
from devwidget.trying.trials import Again, try_alone, try_fixes

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
