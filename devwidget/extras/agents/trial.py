"""The runs that show what an edit does: with it, without it, and with it on another GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from devwidget.capture.interrupts import uninterrupted
from devwidget.capture.step.batch import Arguments
from devwidget.capture.step.step import Step
from devwidget.capture.undo import Undo
from devwidget.extras.agents.judge import doubt, judge_elsewhere, judge_failure, judge_runs
from devwidget.extras.agents.other_gpu import find_other_gpu, move_step
from devwidget.extras.agents.records.evidence import Evidence
from devwidget.records.errors import DevwidgetError, error_text
from devwidget.records.finding import Edit
from devwidget.records.schema.message import Message
from devwidget.records.site import file_label
from devwidget.records.trace import Trace
from devwidget.trying.edited_code import NotTried
from devwidget.trying.installed_edits import find_functions, place_edits
from devwidget.trying.reference_step import Run, modules_that_cut, on_one_device
from devwidget.trying.side_effects import TrialWatch, silence_trial
from devwidget.trying.step_trials import repeat_step
from devwidget.trying.trials import first_line, new_findings

Move = Callable[[Step], Arguments]
"""Returns the inputs of a step, moved or not."""


def _inputs_of(step: Step) -> Arguments:
    return step.inputs


@dataclass(frozen=True, slots=True)
class Subject:
    """The step that an edit is tried on.

    Attributes:
        make: returns the step.
        function: the function of the user that builds it anew at each call; None for a step that exists.
    """

    make: Callable[[], Step]
    function: Callable[[], Any] | None = None

    def list_roots(self, step: Step | None) -> list[Any]:
        """Return objects from which the functions of the step are searched."""
        if step is None:
            return [self.function]
        kinds = {id(type(each)): type(each) for each in step.list_modules()}
        return [self.function, step.loss_fn, *kinds.values(), step.model, step.inputs, step.optimizer]


class Trial:
    """The runs of one edit. `before` is the step without it, None if that cannot be built."""

    def __init__(self, subject: Subject, before: Step | None, edits: tuple[Edit, ...], rewind: Callable[[], None]) -> None:
        self._subject, self._before, self._edits, self._rewind = subject, before, edits, rewind
        self._live = find_functions({edit.file for edit in edits}, subject.list_roots(before))
        self._unreached: list[int] = []
        self._watch = TrialWatch()
        self._runs = 0

    def run(self) -> Evidence:
        """Run the step with and without the edit, and return what this shows."""
        try:
            found = self._run_all()
        except NotTried as error:
            found = Evidence("not run", (str(error.args[0]),))
        return replace(found, edits=self._edits, runs=self._runs, noticed=tuple(self._watch.effects))

    def _run_all(self) -> Evidence:
        try:
            runs = self._run_edited(heal=False)
        except (DevwidgetError, NotTried):
            raise
        except Exception as error:
            return Evidence("fails", (Message("the step cannot be built: {error}", error=error_text(error)),))
        unreached = tuple(map(self._unreached_words, self._unreached))
        if len(unreached) == len(self._edits):
            return Evidence("not run", unreached[:1])
        raised = runs[0].trace.error
        if "OutOfMemoryError" in raised:
            return Evidence("not run", (Message("a trial needs more memory than the step: {error}", error=first_line(raised)),))
        if self._before is None and raised:
            return Evidence("fails", (Message("the step fails: {error}", error=first_line(raised)),))
        if self._before is None:
            reason = Message("the step cannot be built without the edit, so values and gradients were not compared")
            return doubt(Evidence("works", not_compared=reason, new=runs[-1].trace.findings), [reason, *unreached])
        healed = reference = self._run_before(self._before)
        if raised:
            return judge_failure(raised, healed[0].trace, self._run_edited(heal=True)[0].trace)
        parallel = modules_that_cut(self._before.list_modules())
        if parallel:
            reference = self._run_before(self._before, parallel)
        evidence = judge_runs(self._before, self._edits, runs, healed, reference)
        if evidence.verdict != "works":
            return evidence
        return self._try_elsewhere(doubt(evidence, unreached), self._before, healed[0].trace, runs[0].trace)

    def _unreached_words(self, number: int) -> str:
        edit = self._edits[number]
        return Message("the step does not run line {line} of {file}", line=edit.first, file=file_label(edit.file))

    def _run_edited(self, *, heal: bool, move: Move = _inputs_of) -> Sequence[Run]:
        """Run the step with the edit, built again if a function builds it."""
        self._rewind()
        named = self._before or Step(nn.Identity(), Arguments((), {}))
        edited = place_edits(self._edits, named, self._live, is_built=self._subject.function is not None)
        watch = self._watch
        with uninterrupted(), silence_trial() as own, edited as placed, watch.own.inside(), Undo() as undo:
            watch.begin_step(undo)
            step = self._subject.make()
            self._rewind()
            runs = repeat_step(step)(heal, lambda: move(step), own.inside, move is _inputs_of)
            self._unreached = placed.list_unreached()
        self._runs += len(runs)
        return runs

    def _run_before(self, step: Step, parallel: Sequence[Any] = (), move: Move = _inputs_of) -> Sequence[Run]:
        """Run the step without the edit, repaired. The modules of `parallel` use one device."""
        self._rewind()
        with uninterrupted(), silence_trial() as own, on_one_device(parallel):
            runs = repeat_step(step)(True, lambda: move(step), own.inside, move is _inputs_of)
        self._runs += len(runs)
        return runs

    def _try_elsewhere(self, evidence: Evidence, before: Step, was: Trace, now: Trace) -> Evidence:
        """Run the step on another GPU: an edit that names a device may work on that one only."""
        pair = find_other_gpu(before)
        if pair is None:
            return evidence
        move = functools.partial(move_step, pair)
        try:
            known = self._run_before(before, move=move)
            runs = self._run_edited(heal=True, move=move)
        except torch.OutOfMemoryError:
            return evidence  # the other GPU is too full, which says nothing of the edit
        excused = (*now.findings, *new_findings(known[0].trace, was.findings))
        return judge_elsewhere(evidence, excused, runs[0].trace, str(pair[1]))
