"""Code and steps under watch: what `record`, `trace` and the trials of fixes run, and what they keep of it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import torch
from torch import nn

from devwidget import gpus
from devwidget.capture.interrupts import all_or_nothing, interruptible, is_from_handler, sure_exit, uninterrupted
from devwidget.capture.memory.watch import LivingBytes
from devwidget.capture.object_fields import format_value, is_a
from devwidget.capture.recorder import Recorder
from devwidget.capture.recording import allowed_transfers
from devwidget.capture.snapshot.take_snapshot import take_snapshot
from devwidget.capture.step.batch import Arguments, make_arguments
from devwidget.capture.step.step import Step
from devwidget.capture.undo import Undo, paused_gc
from devwidget.fix_writer import remember_findings
from devwidget.memory import account_memory
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.rules import registry as rules

if TYPE_CHECKING:
    from devwidget.capture.restore import SavedState
    from devwidget.trying.offers import SeenCalls
    from devwidget.trying.reference_step import Results
    from devwidget.trying.side_effects import Inside, TrialWatch
    from devwidget.trying.trials import Again

Verify = Literal["auto"] | bool
"""Whether fixes are tried: where that is harmless, everywhere, or nowhere."""


def read_snapshot(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> Snapshot:
    """A snapshot whose memory is sorted by category; a step takes one after each phase where no allocator can be asked."""
    return account_memory(take_snapshot(model, optimizer=optimizer, virtual_gpus=virtual_gpus()))


def virtual_gpus() -> int:
    """How many virtual GPUs are active, 0 for none."""
    active = gpus.active()
    if active is not None:
        return active.gpus
    return 0


class Written(Protocol):
    """Where a recording leaves what it has seen, beside its trace."""

    def write_files(self, trace: Trace, model: nn.Module | None) -> None:
        """Write it, once the recording has ended."""


class Recording:
    """Code under watch: `with devwidget.record() as recording: ...`; then `recording.trace`.

    Args:
        heal: repair each device fault in passing and go on, so that one run finds them all.
        allow: hops and waits that are meant, such as `"cuda:0 -> cpu"`.
        verify_hops: compare both ends of every copy between GPUs.
        written: where this rank of a job leaves what it held and did.
        offer: lets the edits of the trace be tried on the calls of modules that were seen.
    """

    _is_open = False
    _swallows = False
    _watches_memory = True

    def __init__(
        self,
        *,
        heal: bool = False,
        allow: str | Iterable[str] = (),
        verify_hops: bool = False,
        written: Written | None = None,
        offer: Callable[[Trace, SeenCalls, BaseException | None], Trace] | None = None,
    ) -> None:
        self._written, self._offer = written, offer
        self._model: nn.Module | None = None
        self._recorder = Recorder(heal=heal, allow=allowed_transfers.all_parsed(allow), verify_hops=verify_hops)
        self._trace: Trace | None = None
        self._gpus = 0
        self._calls: SeenCalls | None = None

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None, *, name: str = "") -> None:
        """Name the modules; without it the outermost module called is the root.

        Args:
            model: the root.
            optimizer: its optimizer.
            name: how your code calls the model, for the texts.

        Raises:
            DevwidgetError: if `model` is no module, or `optimizer` no optimizer.
        """
        self._recorder.attach_model(model, optimizer, name=name)
        self._model = model

    def follow_living(self, index: int) -> LivingBytes | None:
        """The bytes that were allocated on a device so far and live now, to be looked at later."""
        return self._recorder.follow_living(index)

    @property
    def trace(self) -> Trace:
        """What was seen. Complete once the block has ended; before that, what was seen so far."""
        if self._trace is not None:
            return self._trace
        return self._judged()

    def _judged(self) -> Trace:
        facts = self._recorder.collect_trace()
        with paused_gc():  # syntax trees go by themselves; a pass through all of a large program takes longer than to judge
            return rules.judge(dataclasses.replace(facts, virtual_gpus=self._gpus) if self._gpus else facts)

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
            self._offer_trials(error)
            remember_findings(self._trace.findings)
            if self._written is not None:
                self._written.write_files(self._trace, self._model)
        swallowed = self._swallows and isinstance(error, Exception) and not is_from_handler(error)
        if swallowed:
            return True
        return None

    def _offer_trials(self, error: BaseException | None) -> None:
        """Let edits be tried on the calls that were seen, as long as somebody else keeps what these were given."""
        calls, self._calls = self._calls, None
        if self._offer is None or calls is None or self._trace is None:
            return
        if any(fix.edits for finding in self._trace.findings for fix in finding.fixes):
            self._trace = self._offer(self._trace, calls, error)


class StepRecording(Recording):
    """What the step raises is in the trace, and nowhere else.

    Attributes:
        left: what it has left, if there are edits to hold against it.
    """

    _swallows = True
    left: Results | None = None

    def keep_results(self, seen: Mapping[str, Any]) -> None:
        """Keep what trials will be held against; `record_step` asks for it before the state of the program is put back."""
        has_edits = any(fix.edits for finding in self.trace.findings for fix in finding.fixes)
        if has_edits and self._model is not None and not self.trace.error:
            from devwidget.trying.reference_step import results_of

            self.left = results_of(seen, self._model)


class TrialRecording(StepRecording):
    """A step that is run for a trial: nobody needs the cures of its findings, or sees its memory."""

    _watches_memory = False

    def _judged(self) -> Trace:
        from devwidget.rules.edits.draft import without_fixes

        with without_fixes():
            return super()._judged()


def record_step(
    step: Step,
    inputs_of: Callable[[], Arguments],
    recording: StepRecording,
    name: str,
    progress: Callable[[str], None] | None,
    *,
    restore: bool,
    source: Any = None,
    watch: TrialWatch | None = None,
    inside: Inside = contextlib.nullcontext,
    then: Callable[[Mapping[str, Any]], None] | None = None,
) -> tuple[Trace, Any]:
    """One recorded step, and the output of the model.

    Args:
        source: what the inputs are taken from and that is to be put back.
        inside: what each of its threads enters.
        then: told what the step has left, before all is put back.
    """
    from devwidget.capture.restore import keep_state

    model, optimizer, loss_fn = step.model, step.optimizer, step.loss_fn
    seen: dict[str, Any] = {}
    keeps = keep_state(model, optimizer, loss_fn) if restore else contextlib.nullcontext()
    with uninterrupted(), keeps as kept, Undo() as undo:
        if kept is not None and source is not None:
            kept.add_roots(batch=source)
        with interruptible():
            inputs = inputs_of()
        if kept is not None:
            kept.add_roots(batch=(inputs.args, inputs.kwargs), target=inputs.target)
            inputs = _without_graphs(inputs, recording._recorder, kept, undo)
            recording._recorder.enter_beside(kept.watch_writes)
            if watch is not None:
                watch.begin_step(undo)
                inside = watch.own.inside
        _run_phases(dataclasses.replace(step, inputs=inputs), recording, name, progress, seen, inside)
        if kept is not None and then is not None:
            then(seen)
    trace = recording.trace if kept is None else dataclasses.replace(recording.trace, not_restored=kept.not_restored)
    return trace, seen.get("out")


def _run_phases(
    step: Step,
    recording: StepRecording,
    name: str,
    progress: Callable[[str], None] | None,
    seen: dict[str, Any],
    inside: Inside,
) -> None:
    """Run the phases of a step under watch; nothing is put back."""
    recording._recorder.enter_beside(inside)
    with inside(), recording:
        recording.attach(step.model, step.optimizer, name=name)
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
    """Older graphs are left alone until the end of the step; the batch without its own."""
    from devwidget.capture.step.graphs import CUT, cut_from_graphs, graphs_kept

    undo.enter_context(graphs_kept(kept, recorder.add_note))
    inputs, cuts = cut_from_graphs(inputs)
    for tensor, original in cuts:
        recorder.stand_in(tensor, original)
    if cuts:
        recorder.add_note(CUT)
    return inputs


def refuse_verify(verify: object) -> None:
    """Refuse what says neither whether nor when fixes are tried.

    Raises:
        DevwidgetError: with the three values that do.
    """
    if not (is_a(verify, bool) or (is_a(verify, str) and verify == "auto")):
        raise DevwidgetError(
            Message(
                "verify={value} says not when fixes are tried",
                value=format_value(verify) if not is_a(verify, str) else repr(verify),
            ),
            instead='verify="auto", verify=True or verify=False',
        )


def start_watch() -> TrialWatch:
    """Watch what a step does outside of itself; it is loaded with the first step whose fixes may be tried."""
    from devwidget.trying.side_effects import TrialWatch

    return TrialWatch()


def verify_fixes(
    found: Trace,
    left: Results | None,
    step: Step,
    watch: TrialWatch,
    verify: Verify,
    allow: str | Iterable[str],
    name: str,
) -> Trace:
    """The trace with its fixes tried, where that is harmless or asked for; else with why they were not."""
    from devwidget.trying.offers import mark_untried
    from devwidget.trying.side_effects import reasons_against_trial
    from devwidget.trying.trials import try_fixes

    why = tuple(reasons_against_trial(found, watch.effects))
    if why and verify != True:  # noqa: E712  "auto" is true too
        return mark_untried(found, why[0])
    found = try_fixes(found, left, step, repeat_step(step, allow, name), is_asked=verify is True)
    return dataclasses.replace(found, noticed=why)


def try_fix(
    fix: Fix,
    model: nn.Module,
    batch: Any,
    *,
    loss_fn: Callable[..., Any] | None = None,
    target: Any = None,
    optimizer: torch.optim.Optimizer | None = None,
    backward: bool | None = None,
    allow: str | Iterable[str] = (),
    name: str = "",
    progress: Callable[[str], None] | None = None,
) -> Fix:
    """What `Fix.try_it` does, on a step that is as for `trace`."""
    from devwidget.trying.silenced_output import silence_trial
    from devwidget.trying.trials import try_alone

    inputs = make_arguments(model, batch, target=target, has_loss=loss_fn is not None)
    step = Step(model, inputs, loss_fn, optimizer, backward)
    recording = StepRecording(heal=True, allow=allow)
    with silence_trial() as own:
        found, _ = record_step(
            step, lambda: inputs, recording, name, progress, restore=True, inside=own.inside, then=recording.keep_results
        )
    found = dataclasses.replace(found, step_runs=1)
    return try_alone(found, recording.left, step, repeat_step(step, allow, name), fix)


def repeat_step(step: Step, allow: str | Iterable[str], name: str) -> Again:
    """Runs a step for a trial."""
    from devwidget.trying.reference_step import Run, results_of

    def again(heal: bool, inputs: Callable[[], Arguments], inside: Inside) -> Run:
        left: list[Results] = []
        recording = TrialRecording(heal=heal, allow=allow)

        def then(seen: Mapping[str, Any]) -> None:
            left.append(results_of(seen, step.model))

        trace, _ = record_step(step, inputs, recording, name, None, restore=True, inside=inside, then=then)
        return Run(trace, left[0])

    return again
