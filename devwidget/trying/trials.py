"""Decide which fixes are verified, in which order, and what happens to those that fail."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic as clock

from devwidget.capture.interrupts import uninterrupted
from devwidget.capture.source_code.frames import MOST_OBJECTS
from devwidget.capture.step.batch import Arguments
from devwidget.capture.step.step import Step
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Confidence, Edit, Effect, Finding, Fix
from devwidget.records.schema.message import Message, in_row
from devwidget.records.trace import Trace
from devwidget.trying.edited_code import NotTried
from devwidget.trying.installed_edits import LiveFunctions, find_functions, place_edits
from devwidget.trying.reference_step import (
    Reference,
    Results,
    Run,
    cured_moves,
    is_random,
    key_of,
    make_reference,
    modules_that_cut,
    on_one_device,
)
from devwidget.trying.side_effects import Inside, reasons_around, silence_trial

Again = Callable[[bool, Callable[[], Arguments], Inside, bool], list[Run]]
"""Runs the step with or without repair, in the given context for its threads. The inputs are made once all state is saved. It
runs a second time before the state is restored if it changed more than gradients, or if asked.
"""

MOST_TRIALS = 8
"""Number of step runs that one trace may use to verify its fixes."""
LAST_BEGIN_SECONDS = 30.0
"""No trial begins after this time, so a slow step is run once more and not eight times."""
one_at_a_time = threading.RLock()
"""Trials change functions, file names and classes, which all threads share."""
_NOT_ALL_SEEN = Message(
    "the program holds more than {count} objects, and the edited function was not found among them", count=MOST_OBJECTS
)
_IMPOSSIBLE = Message("its lines cannot replace code that has already run")


def try_fixes(trace: Trace, left: Results | None, step: Step, again: Again, *, is_asked: bool) -> Trace:
    """Return the trace with verified fixes first, and without fixes that a run has shown to be wrong.

    Args:
        trace: the repaired step.
        left: results of that step, if another run would leave the same.
        step: the step that was run.
        again: runs the step again.
        is_asked: verify fixes even while other threads run.
    """
    trials = _Trials(trace, left, step, again, is_asked)
    with one_at_a_time:
        trials.run()
    findings = tuple(map(trials.judged, trace.findings))
    return dataclasses.replace(trace, findings=findings, step_runs=trace.step_runs + trials.runs)


def try_alone(trace: Trace, left: Results | None, step: Step, again: Again, fix: Fix) -> Fix:
    """Return a fix of a trace with the result of running it.

    Raises:
        DevwidgetError: if the trace has no such fix.
    """
    trials = _Trials(trace, left, step, again, is_asked=True)
    with one_at_a_time:
        works = trials.try_one(fix)
    if works is False:
        judged = dataclasses.replace(fix, not_tried="", fails=True)
    else:
        judged = trials.outcomes.get(fix) or dataclasses.replace(fix, not_tried=_IMPOSSIBLE)
    return dataclasses.replace(judged, runs=trace.step_runs + trials.runs)


class _Trials:
    """All trials of one trace.

    Attributes:
        runs: number of times the step was run.
        outcomes: fixes with their results: verified, or why they were not tried.
    """

    def __init__(self, trace: Trace, left: Results | None, step: Step, again: Again, is_asked: bool) -> None:
        self._healed = Run(trace, left) if left is not None else None
        self._moves = cured_moves(trace)
        self._has_failed = bool(trace.error)
        self._again_healed: list[Run] = []
        self._parallel = modules_that_cut(step.list_modules())
        self._found = [finding for finding in trace.findings if finding.severity != "info"]
        self._step, self._again, self._left = step, again, MOST_TRIALS
        self._is_asked, self.runs = is_asked, 0
        self._end = clock() + LAST_BEGIN_SECONDS
        self._good: dict[int, Fix] = {}
        self.outcomes: dict[Fix, Fix] = {}
        self._failures: dict[Fix, str] = {}
        self._wrong: set[Fix] = set()

    @functools.cached_property
    def _live(self) -> LiveFunctions:
        step = self._step
        files = {edit.file for each in self._found for fix in each.fixes for edit in fix.edits}
        kinds = {id(type(each)): type(each) for each in step.list_modules()}
        return find_functions(files, [step.loss_fn, *kinds.values(), step.model, step.inputs, step.optimizer])

    def try_one(self, fix: Fix) -> bool | None:
        """Run the step with one fix, all other findings repaired. Return whether it works; None if unknown.

        Raises:
            DevwidgetError: if no finding has that fix.
        """
        for number, finding in enumerate(self._found):
            if has_edits_of(finding, fix):
                return self._works({number: fix})
        raise DevwidgetError(
            Message("this fix can no longer be tried"),
            why=Message("the step no longer has this fault: its code, model or batch has changed"),
            instead="devwidget.trace(model, batch, verify=True)",
        )

    def run(self) -> None:
        """Run the first edits of all findings together. If that fails, run one finding at a time with the others repaired."""
        edits = {n: [fix for fix in finding.fixes if fix.edits] for n, finding in enumerate(self._found)}
        first = {n: fixes[0] for n, fixes in edits.items() if fixes}
        if len(first) > 1 and self._works(first):
            self._good = first
            return
        for number, fixes in edits.items():
            for fix in fixes:
                works = self._works({**self._good, number: fix})
                if works:
                    self._good[number] = fix
                    break
                if works is False:
                    self._wrong.add(fix)

    def judged(self, finding: Finding) -> Finding:
        """Return a finding with its working fix first, and without wrong fixes."""
        good = next((self._good.get(at) for at, each in enumerate(self._found) if each is finding), None)
        left = [fix for fix in finding.fixes if fix not in self._wrong]
        if good is not None:
            left = [good, *(fix for fix in left if fix is not good)]
        if finding.fixes and not left:
            return _without_fixes(finding, self._failures)
        return dataclasses.replace(finding, fixes=tuple(self.outcomes.get(fix, fix) for fix in left))

    def _works(self, fixes: dict[int, Fix]) -> bool | None:
        """Return whether the step runs with these edits as it did repaired; None if unknown."""
        others = [finding for number, finding in enumerate(self._found) if number not in fixes]
        works = self._attempt(fixes, others, heal=bool(others))
        if works is False and not others and self._attempt(fixes, others, heal=True):
            return None  # it fixes its finding; the step needs another fix that no finding has
        return works

    def _attempt(self, fixes: dict[int, Fix], others: list[Finding], *, heal: bool) -> bool | None:
        """Run the step with some fixes and note the result of each. Return whether it works; None if unknown."""
        chosen = list(fixes.values())
        why = self._why_not_now()
        if why:
            self._note_untried(chosen, why)
            return None
        edits = list(dict.fromkeys(edit for fix in chosen for edit in fix.edits))
        effects: dict[Edit, Effect] = {}
        for fix in chosen:
            if fix._effect.value is not None:
                effects |= dict.fromkeys(fix.edits, fix._effect.value)
        try:
            with uninterrupted(), silence_trial() as own, place_edits(edits, self._step, self._live, effects) as trial:
                runs = self._again(heal, trial.make_inputs, own.inside, False)
                unreached = trial.list_unreached()
        except NotTried as error:
            if isinstance(error.args[0], Message):  # the others are no words for users
                self._note_untried(chosen, error.args[0])
            return None
        self.runs += len(runs)
        self._left -= 1
        if unreached:
            if not self._live.is_whole:
                self._note_untried(chosen, _NOT_ALL_SEEN)
            return None
        if any("OutOfMemoryError" in each.trace.error for each in runs):
            return None  # the trial needs more memory than the step, which says nothing of the edit
        failure = self._judge(fixes, others, runs, is_random(edits))
        if not failure:
            if failure is None:
                return None
            return True
        self._failures |= dict.fromkeys(chosen, failure)
        if effects:
            return None  # an edit was not where it will be in the file
        return False

    def _judge(self, fixes: dict[int, Fix], others: list[Finding], runs: Sequence[Run], is_random: bool) -> str | None:
        """Compare a trial with the step on one device. Return how it fails; "" if it works, None if unknown."""
        if runs[0].trace.error:
            return Message("the step fails: {error}", error=first_line(runs[0].trace.error))
        reference = self._find_reference(runs, others)
        failure = self._how_it_fails(runs, others, reference, is_random)
        new = new_findings(runs[0].trace, others)
        if not failure and new:
            failure = Message("the step has {finding}", finding=describe_finding(new[0]))
            if self._only_waits(fixes, new):
                (fix,) = fixes.values()
                self.outcomes[fix] = dataclasses.replace(fix, warns=describe_finding(new[0]), not_tried="")
                return None
        if not failure:
            why = find_why_not_compared(reference, runs)
            self.outcomes |= {fix: _verify(fix, why) for fix in fixes.values()}
        elif others and reference is not None and self._parallel and not runs[-1].trace.error:
            return None  # the batch is cut for several GPUs: what differs may be what the other findings are about
        return failure

    def _note_untried(self, fixes: Iterable[Fix], why: str) -> None:
        for fix in fixes:
            if not self.outcomes.get(fix, fix).verified:
                self.outcomes[fix] = dataclasses.replace(fix, not_tried=why)

    def _how_it_fails(self, runs: Sequence[Run], others: list[Finding], reference: Reference | None, is_random: bool) -> str:
        """Return what is wrong with the runs of a trial, except new findings of the first; "" for nothing."""
        healed: Sequence[Run] = self._again_healed
        if reference is not None:
            healed = reference.runs
            difference = reference.find_difference(runs, is_random=is_random)
            if difference:
                return difference
        if runs[-1].trace.error:
            if len(healed) > 1 and healed[1].trace.error:
                return ""
            return Message("the second step fails: {error}", error=first_line(runs[-1].trace.error))
        new = _new_in_second(runs, others, healed)
        if new:
            return Message("the second step has {finding}", finding=describe_finding(new[0]))
        return ""

    def _find_reference(self, runs: Sequence[Run], others: list[Finding]) -> Reference | None:
        """Return the step on one device that a trial is compared with; None if that step fails.

        A repaired step ran on one device, unless its batch is split. If a trial left the same state as the repaired step, its
        second run would be the same, so it only has to succeed.
        """
        if self._has_failed:
            return None
        modules = self._step.list_modules()
        if self._healed is not None and not self._parallel and self._goes_on_alike(self._healed, runs, others):
            return make_reference([self._healed], modules, False, self._moves)
        if not self._again_healed:
            with uninterrupted(), silence_trial() as own, on_one_device(self._parallel):
                self._again_healed = self._again(True, lambda: self._step.inputs, own.inside, bool(self._parallel))
                self.runs += len(self._again_healed)
        if not self._again_healed or self._again_healed[0].trace.error:
            return None
        return make_reference(self._again_healed, modules, bool(self._parallel), self._moves)

    def _goes_on_alike(self, healed: Run, runs: Sequence[Run], others: list[Finding]) -> bool:
        runs_on = not runs[-1].trace.error and not _new_in_second(runs, others, [healed])
        return runs_on and healed.results.leaves_as_much(runs[0].results)

    def _why_not_now(self) -> str:
        """Return why no further trial may begin; "" if one may."""
        if not self._left:
            return Message("{count} trials were run before it", count=MOST_TRIALS)
        if clock() > self._end:
            return Message("the trials before it took {seconds} s", seconds=f"{LAST_BEGIN_SECONDS:.0f}")
        if self._is_asked:
            return ""
        return next(reasons_around(), "")

    def _only_waits(self, fixes: dict[int, Fix], more: list[Finding]) -> bool:
        """Return whether the only new findings are syncs on data that was on the host before: neither verified nor wrong."""
        errors = all(self._found[number].severity == "error" for number in fixes)
        return errors and len(fixes) == 1 and all(finding.kind == "host-sync" for finding in more)


def has_edits_of(finding: Finding, fix: Fix) -> bool:
    """Return whether a finding has a fix with the same edits."""
    return any(each.edits == fix.edits for each in finding.fixes)


def _verify(fix: Fix, why_not_compared: str) -> Fix:
    """Return a working fix: sure if its results were compared with one device and it is not one of several designs."""
    sure: Confidence = "sure"
    if why_not_compared or fix.confidence == "choice":
        sure = fix.confidence
    return dataclasses.replace(fix, verified=True, confidence=sure, not_compared=why_not_compared, not_tried="")


def find_why_not_compared(reference: Reference | None, runs: Sequence[Run]) -> str:
    """Return why the results of a trial say nothing about its values; "" if they do."""
    if reference is None:
        return Message("the step cannot be run with everything on one device")
    if reference.tells_values(runs):
        return ""
    return Message("on one device its values differ from run to run")


def _new_in_second(runs: Sequence[Run], others: Iterable[Finding], healed: Iterable[Run]) -> list[Finding]:
    """Return errors of the second run that repaired steps do not have."""
    known = [*others, *(each for run in healed for each in run.trace.findings)]
    return [each for run in runs[1:] for each in new_findings(run.trace, known) if each.severity == "error"]


def new_findings(trace: Trace, others: Iterable[Finding]) -> list[Finding]:
    """Return findings in excess of the others that were repaired."""
    known, more = Counter(map(key_of, others)), []
    for finding in trace.findings:
        known[key_of(finding)] -= 1
        if finding.severity != "info" and known[key_of(finding)] < 0:
            more.append(finding)
    return more


def describe_finding(finding: Finding) -> str:
    """Return `wrong-device at line 12`."""
    site = finding.fault or finding.birth
    if site is not None:
        return Message("{kind} at line {line}", kind=finding.kind, line=site.line)
    return finding.kind


def first_line(text: str) -> str:
    """Return the first line of an exception's text."""
    return text.partition("\n")[0]


def _without_fixes(finding: Finding, failures: Mapping[Fix, str]) -> Finding:
    """Remove the fixes of a finding whose edits have all failed, and add a note on how they fail."""
    tried = in_row(dict.fromkeys(fix.summary for fix in finding.fixes), "; ")
    notes = [Message("with these edits the step still fails or gives a different result: {edits}", edits=tried)]
    for fix in finding.fixes:
        if fix in failures:
            notes.append(Message("{edit}: {reason}", edit=fix.summary, reason=failures[fix]))
    return dataclasses.replace(finding, fixes=(), notes=(*finding.notes, *dict.fromkeys(notes)))
