"""A call of a model that a program has made: run again, under precautions, to try the edits of what was found of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from devwidget.capture.explain.read_error import outermost_call
from devwidget.capture.object_fields import class_name
from devwidget.capture.step.batch import Arguments
from devwidget.capture.step.step import Step
from devwidget.recording import StepRecording, Verify, record_step, repeat_step, step_subjects
from devwidget.records.errors import error_text
from devwidget.records.explanation import Explanation
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message
from devwidget.records.trace import Trace
from devwidget.trying.edited_file import NotTried
from devwidget.trying.offers import LiveParts, LiveStep, SeenCalls, left_untried, offered
from devwidget.trying.outside.conditions import reasons, surroundings
from devwidget.trying.outside.precaution import Precaution, Stopped
from devwidget.trying.outside.quiet import quiet
from devwidget.trying.trials import tried, tried_alone

_NO_SUCH_FAULT = Message("the call has no such fault when it is run again")
Call = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
"""A module, and what it was called with."""


def try_explained(told: Explanation, error: BaseException, verify: Verify) -> Explanation:
    """An explanation whose edits were tried as `trace` tries them, or with why they were not.

    Args:
        told: what was read of the exception.
        error: its frames still hold the call that has failed, if that was one of a module.
        verify: `"auto"` runs it where its code can change nothing that is not put back and it takes no longer than
            `precaution.MOST_SECONDS`; True whatever it does, False not at all.
    """
    call = outermost_call(error)
    if call is None:
        return told
    model, args, kwargs = call
    step, trace = Step(model, Arguments(args, kwargs)), Trace(findings=told.findings)
    if verify is not False:
        trace = _verified(trace, step, is_asked=verify is True)
    live = LiveStep(_live_parts(call), functools.partial(_try_alone, told.findings))
    notes = (*told.notes, *_runs_words(step, trace.step_runs))
    return dataclasses.replace(told, findings=offered(trace, live).findings, notes=notes)


def offer_trials(trace: Trace, calls: SeenCalls, error: BaseException | None) -> Trace:
    """A recorded trace whose edits can be tried on the calls that were seen, that of the exception first."""
    failed = outermost_call(error) if error is not None else None
    run = functools.partial(_try_alone, trace.findings)
    return calls.offered(trace, run, _live_parts(failed) if failed is not None else None)


def _live_parts(call: Call) -> LiveParts:
    return LiveParts(dict(zip(("model", "args", "kwargs"), call, strict=True)))


def _runs_words(step: Step, runs: int) -> Iterator[str]:
    name = class_name(type(step.model))
    if runs:
        yield Message("the call of `{name}` was run {count} times more to try fixes, and put back", name=name, count=runs)


def _verified(trace: Trace, step: Step, *, is_asked: bool) -> Trace:
    """The findings with the fixes that a run has verified first."""
    why: str = "" if is_asked else next(surroundings(), "")
    if why:
        return left_untried(trace, why)
    try:
        healed = _healed(step, is_asked=is_asked)
    except (Stopped, NotTried) as stopped:
        return left_untried(trace, stopped.args[0])
    except Exception as error:  # of ours or of the program's own: what the exception tells is told all the same
        return left_untried(trace, Message("running the call again has failed: {error}", error=error_text(error)))
    return _judged(trace, healed, step, is_asked=is_asked)


def _judged(trace: Trace, healed: Trace, step: Step, *, is_asked: bool) -> Trace:
    merged, places = _in_place(healed, trace.findings)
    if not places:
        return dataclasses.replace(left_untried(trace, _NO_SUCH_FAULT), step_runs=healed.step_runs)
    done = tried(merged, step_subjects(step), repeat_step(step, (), ""), is_asked=is_asked)
    findings = list(left_untried(trace, _NO_SUCH_FAULT).findings)
    for mine, place in places.items():
        findings[mine] = done.findings[place]
    return dataclasses.replace(trace, findings=tuple(findings), step_runs=done.step_runs)


def _healed(step: Step, *, is_asked: bool) -> Trace:
    """One run of the call with each fault healed.

    Raises:
        Stopped: before it reaches outside, or when it takes long.
        NotTried: if what it prints cannot be kept back.
    """
    recording = StepRecording(heal=True)
    with quiet() as own:
        if is_asked:
            found, _ = record_step(step, lambda: step.inputs, recording, "", None, restore=True, inside=own.inside)
        else:
            watch = Precaution(own)
            told = watch.report_progress
            found, _ = record_step(step, lambda: step.inputs, recording, "", told, restore=True, watch=watch)
            for why in reasons(found, watch.effects):
                raise Stopped(why)
    return dataclasses.replace(found, step_runs=1)


def _in_place(healed: Trace, findings: Iterable[Finding]) -> tuple[Trace, dict[int, int]]:
    """A healed trace in which what was found of the call stands for what the run has found at the same line; and which does."""
    there = [dataclasses.replace(each, fixes=()) for each in healed.findings]  # only what was asked for is tried
    places: dict[int, int] = {}
    for number, finding in enumerate(findings):
        same = (at for at, each in enumerate(there) if at not in places.values() and _is_same(each, finding))
        if (place := next(same, None)) is not None:
            there[place], places[number] = finding, place
    return dataclasses.replace(healed, findings=tuple(there)), places


def _is_same(a: Finding, b: Finding) -> bool:
    places = [(each.fault.file, each.fault.line) if each.fault is not None else None for each in (a, b)]
    return a.severity == b.severity and places[0] == places[1]


def _try_alone(findings: tuple[Finding, ...], fix: Fix, model: nn.Module, args: Any, kwargs: Any) -> Fix:
    """What `Fix.try_it` does."""
    step = Step(model, Arguments(args, kwargs))
    merged, _ = _in_place(_healed(step, is_asked=True), findings)
    return tried_alone(merged, step_subjects(step), repeat_step(step, (), ""), fix)
