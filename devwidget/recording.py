"""Recorded code and steps: what `record`, `trace` and the verification of fixes run, and what they keep."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import nn

from devwidget import gpus
from devwidget.capture.interrupts import all_or_nothing, interruptible, is_from_handler, sure_exit, uninterrupted
from devwidget.capture.recorder import Recorder
from devwidget.capture.recording import allowed_transfers
from devwidget.capture.snapshot.take_snapshot import take_snapshot
from devwidget.capture.step.batch import Arguments
from devwidget.capture.step.step import Step
from devwidget.capture.undo import Undo, paused_gc
from devwidget.fix_writer import remember_findings
from devwidget.memory import account_memory
from devwidget.records.memory import Holding
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.rules import registry as rules

if TYPE_CHECKING:
    from devwidget.capture.restore import SavedState
    from devwidget.trying.offers import SeenCalls
    from devwidget.trying.reference_step import Results
    from devwidget.trying.side_effects import Inside, TrialWatch


def read_snapshot(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> Snapshot:
    """Return a snapshot with memory by category."""
    return account_memory(take_snapshot(model, optimizer=optimizer, virtual_gpus=virtual_gpus()))


def virtual_gpus() -> int:
    """Return the number of active virtual GPUs, 0 for none."""
    active = gpus.active()
    if active is not None:
        return active.gpus
    return 0


class Written(Protocol):
    """Where a recording saves more than its trace."""

    def write_files(self, trace: Trace, model: nn.Module | None) -> None:
        """Write the files, once the recording has ended."""


class Recording:
    """Record a block of code: `with devwidget.record() as recording: ...`; then read `recording.trace`.

    Args:
        heal: Move misplaced tensors and continue, so that one run finds every fault.
        allow: Intended transfers and syncs, such as `"cuda:0 -> cpu"`.
        written: Where this rank of a job saves its state and its trace.
        more_rules: Rules to check besides those that check every trace.
        offer: Lets you verify edits of the trace on the recorded calls of modules.
    """

    _is_open = False
    _swallows = False
    _watches_memory = True

    def __init__(
        self,
        *,
        heal: bool = False,
        allow: str | Iterable[str] = (),
        written: Written | None = None,
        more_rules: tuple[rules.Rule, ...] = (),
        offer: Callable[[Trace, SeenCalls, BaseException | None], Trace] | None = None,
    ) -> None:
        self._written, self._offer = written, offer
        self._more_rules = more_rules
        self._model: nn.Module | None = None
        self._recorder = Recorder(heal=heal, allow=allowed_transfers.all_parsed(allow))
        self._trace: Trace | None = None
        self._gpus = 0
        self._calls: SeenCalls | None = None

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None, *, name: str = "") -> None:
        """Name the modules; without it the outermost module called is the root.

        Args:
            model: The root.
            optimizer: Its optimizer.
            name: Name of the model in your code, for reports.

        Raises:
            DevwidgetError: If `model` is not a module or `optimizer` not an optimizer.
        """
        self._recorder.attach_model(model, optimizer, name=name)
        self._model = model

    def follow_living(self, index: int) -> Callable[[], list[Holding]] | None:
        """Return what lists the live allocations of a device so far, to be called later."""
        memory = self._recorder.memory
        if memory is None:
            return None
        return memory.follow_living(index)

    @property
    def trace(self) -> Trace:
        """The trace. Complete once the block has ended; before that, what was recorded so far."""
        if self._trace is not None:
            return self._trace
        return self._judged()

    def _judged(self) -> Trace:
        facts = self._recorder.collect_trace()
        with paused_gc():  # syntax trees go by themselves; a pass through all of a large program takes longer than to judge
            facts = dataclasses.replace(facts, virtual_gpus=self._gpus) if self._gpus else facts
            return rules.judge(facts, (*rules.all_rules(), *self._more_rules))

    def __enter__(self) -> Self:
        self._recorder.refuse_again()
        self._begin()
        return self

    @all_or_nothing
    def _begin(self) -> None:
        self._is_open = True
        self._gpus = virtual_gpus()
        self._recorder.__enter__()
        if self._offer is not None:
            from devwidget.trying.offers import SeenCalls

            self._calls = SeenCalls()
            self._recorder.report_calls(self._calls.note_call)
        if not self._watches_memory:
            return
        if self._gpus:
            self._recorder.watch_memory(gpus.memory())
        elif torch.cuda.device_count():  # asks NVML, makes no context
            from devwidget.capture.memory.cuda_memory import CudaMemory

            self._recorder.watch_memory(CudaMemory())

    @sure_exit
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        with uninterrupted():
            self._recorder.__exit__(kind, error, trace)
            self._is_open = False
            self._gpus = max(self._gpus, virtual_gpus())  # started inside
            self._trace = self._judged()  # a rule that is struck by a signal would be taken for one that crashes
            if isinstance(error, torch.OutOfMemoryError):
                self._add_kept_memory(error, sys._getframe(1))
            self._offer_trials(error)
            remember_findings(self._trace.findings)
            if self._written is not None:
                self._written.write_files(self._trace, self._model)
        swallowed = self._swallows and isinstance(error, Exception) and not is_from_handler(error)
        if swallowed:
            return True
        return None

    def _add_kept_memory(self, error: BaseException, frame: FrameType) -> None:
        """Add what was kept needlessly when a device was full."""
        from devwidget.post_mortem import read_full_memory

        kept, trouble = rules.run_rule("kept-memory", lambda each: read_full_memory(each, frame).findings, error)
        found = self.trace
        not_checked = found.not_checked if trouble is None else (*found.not_checked, trouble)
        self._trace = dataclasses.replace(found, findings=(*kept, *found.findings), not_checked=not_checked)

    def _offer_trials(self, error: BaseException | None) -> None:
        """Offer to verify edits on the recorded calls, while your code keeps their inputs alive."""
        calls, self._calls = self._calls, None
        if self._offer is None or calls is None or self._trace is None:
            return
        if any(fix.edits for finding in self._trace.findings for fix in finding.fixes):
            self._trace = self._offer(self._trace, calls, error)


class StepRecording(Recording):
    """Record a step. Its exceptions are in the trace and do not propagate.

    Attributes:
        left: State after the step, if there are edits to compare it with.
    """

    _swallows = True
    left: Results | None = None

    def keep_results(self, inputs: Arguments, seen: Mapping[str, Any], kept: SavedState) -> None:
        """Keep the results that trials are compared with, before the state of the program is restored."""
        has_edits = any(fix.edits for finding in self.trace.findings for fix in finding.fixes)
        if has_edits and self._model is not None and not self.trace.error:
            from devwidget.trying.reference_step import results_of

            self.left = results_of(seen, self._model, kept.list_changed())


def record_step(
    step: Step,
    inputs_of: Callable[[], Arguments],
    recording: StepRecording,
    progress: Callable[[str], None] | None = None,
    *,
    restore: bool,
    source: Any = None,
    watch: TrialWatch | None = None,
    inside: Inside = contextlib.nullcontext,
    then: Callable[[Arguments, dict[str, Any], SavedState], None] | None = None,
) -> tuple[Trace, Any]:
    """Run and record one step.

    Args:
        source: Source of the inputs, which is restored.
        inside: Context that each thread of the step enters.
        then: Called with the inputs, the state after the step, and the state before it, which is restored next.

    Returns:
        The recording and the output of the model.
    """
    from devwidget.capture.restore import keep_state

    model, optimizer, loss_fn = step.model, step.optimizer, step.loss_fn
    seen: dict[str, Any] = {}
    keeps = keep_state(model, optimizer, loss_fn) if restore else contextlib.nullcontext()
    with uninterrupted(), keeps as kept, Undo() as undo:
        if kept is not None and source is not None:
            kept.add_roots(batch=source)
        with interruptible():
            inputs = recording._recorder.take_batch(inputs_of)
        if kept is not None:
            kept.add_roots(batch=(inputs.args, inputs.kwargs), target=inputs.target)
            inputs = _without_graphs(inputs, recording._recorder, kept, undo)
            recording._recorder.enter_beside(kept.watch_writes)
            if watch is not None:
                watch.begin_step(undo)
                inside = watch.own.inside
        run_phases(dataclasses.replace(step, inputs=inputs), recording, progress, seen, inside)
        if kept is not None and then is not None:
            then(inputs, seen, kept)
    trace = recording.trace if kept is None else dataclasses.replace(recording.trace, not_restored=kept.not_restored)
    return trace, seen.get("out")


def run_phases(
    step: Step,
    recording: StepRecording,
    progress: Callable[[str], None] | None,
    seen: dict[str, Any],
    inside: Inside,
) -> None:
    """Run the phases of a recorded step. Restores nothing."""
    recording._recorder.enter_beside(inside)
    with inside(), recording:
        recording.attach(step.model, step.optimizer, name=step.name)
        recording._recorder.register_inputs((step.inputs.args, step.inputs.kwargs), step.inputs.target)
        if progress is not None:
            recording._recorder.report_progress(step.model, progress)
        for phase, run in step.list_phases(seen):
            with recording._recorder.set_phase(phase):
                with interruptible():
                    if progress is not None:
                        progress(phase)
                    run()
                if recording._watches_memory:
                    ran = progress is not None or step.runs_in(phase)
                    recording._recorder.mark_phase(phase, lambda: read_snapshot(step.model, step.optimizer).memory, ran=ran)


def _without_graphs(inputs: Arguments, recorder: Recorder, kept: SavedState, undo: Undo) -> Arguments:
    """Detach the batch, and keep older graphs unchanged until the end of the step."""
    from devwidget.capture.step.graphs import CUT, cut_from_graphs, keep_graphs

    keep_graphs(kept, recorder.add_note, undo)
    inputs, cuts = cut_from_graphs(inputs)
    for tensor, original in cuts:
        recorder.stand_in(tensor, original)
    if cuts:
        recorder.add_note(CUT)
    return inputs
