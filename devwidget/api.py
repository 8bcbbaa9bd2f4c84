"""The public functions: they wire the layers together, and load the screen only when it is shown."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, get_args, overload

import torch
from torch import nn

from devwidget import simulator
from devwidget.capture import background_births as background_births
from devwidget.capture.devices.memory import read_memory
from devwidget.capture.explain import folded_frames as folded_frames
from devwidget.capture.interrupts import all_or_nothing, interruptible, is_from_handler, sure_exit, uninterrupted
from devwidget.capture.object_fields import class_name, is_a
from devwidget.capture.object_fields import format_value as word_of
from devwidget.capture.recorder import Recorder
from devwidget.capture.recording import allowed_transfers
from devwidget.capture.recording.allowed_transfers import allow
from devwidget.capture.snapshot.take_snapshot import take_snapshot
from devwidget.capture.step.batch import Arguments, Inputs, make_arguments
from devwidget.capture.step.sources import ITEM_TAKEN, is_source, moves_on
from devwidget.capture.step.step import Step
from devwidget.capture.undo import Undo
from devwidget.capture.validation import refuse_loss, refuse_model, refuse_optimizer, words_of
from devwidget.language.speaking import set_language as set_language
from devwidget.memory import account_memory
from devwidget.records.answers.layout import Layout
from devwidget.records.comparing.comparison import Comparison
from devwidget.records.errors import BatchError, DevwidgetError, PlacementError, SimulationError, nearest
from devwidget.records.explanation import Explanation
from devwidget.records.finding import Edit, Finding, Fix, Severity
from devwidget.records.plan import Plan
from devwidget.records.ranks.cluster import Cluster, asker_of, may_be_asked_again
from devwidget.records.ranks.parallel_plan import ParallelPlan
from devwidget.records.ranks.pipeline import Pipeline
from devwidget.records.schema.message import Message
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.rules import registry as rules
from devwidget.simulator import simulate
from devwidget.views.compare import comparison

if TYPE_CHECKING:
    import os

    from devwidget.capture.restore import SavedState
    from devwidget.distributed.agent import Agent
    from devwidget.distributed.report import RankWriter
    from devwidget.trying.comparison import Results
    from devwidget.trying.outside.own_threads import Inside
    from devwidget.trying.outside.watch import Watch
    from devwidget.trying.subjects import Subjects
    from devwidget.trying.trials import Again
    from devwidget.ui.panel import DeviceWidget
    from devwidget.ui.ranks_panel import RanksWidget

Verify = Literal["auto"] | bool
"""Whether fixes are tried: where that is harmless, everywhere, or nowhere."""

__all__ = [
    "BatchError", "DevwidgetError", "Inputs", "PlacementError", "Recording", "SimulationError", "allow", "check", "compare",
    "explain", "is_about_placement", "load", "open", "pipeline", "place", "plan", "ranks", "record", "serve", "set_language",
    "show", "simulate", "snapshot", "trace",
]  # fmt: skip


_ALLOW_EXAMPLE = 'allow=("host-sync", "cuda:0 -> cpu")'


def snapshot(model: nn.Module, *, optimizer: torch.optim.Optimizer | None = None) -> Snapshot:
    """Where every tensor of a model is: parameters, buffers, and tensors in plain attributes.

    Reads only: nothing runs, moves, or is allocated on a device.

    Args:
        model: any module, wrapped or not.
        optimizer: its optimizer, to count the state as well.

    Returns:
        A frozen record to print, with `.to_frame()`, `.to_html(path)` and `.save(path)`.

    Raises:
        DevwidgetError: if `model` is no module or `optimizer` no optimizer.
    """
    return _placed(model, optimizer)


def _placed(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> Snapshot:
    """Also what a step holds at the end of each phase, where there is no allocator to ask."""
    return account_memory(take_snapshot(model, optimizer=optimizer, virtual_gpus=virtual_gpus()))


class Recording:
    """Code under watch: `with devwidget.record() as recording: ...`; then `recording.trace`.

    Args:
        heal: repair each device fault in passing and go on, so that one run finds them all.
        allow: hops and waits that are meant, such as `"cuda:0 -> cpu"`.
        verify_hops: compare both ends of every copy between GPUs.
        written: where this rank of a job leaves what it held and did.
    """

    inside = False
    _swallows = False

    def __init__(
        self,
        *,
        heal: bool = False,
        allow: str | Iterable[str] = (),
        verify_hops: bool = False,
        written: RankWriter | None = None,
    ) -> None:
        self._written = written
        self._model: nn.Module | None = None
        self._recorder = Recorder(heal=heal, allow=allowed_transfers.all_parsed(allow), verify_hops=verify_hops)
        self._trace: Trace | None = None
        self._gpus = 0

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None, *, name: str = "") -> None:
        """Name the modules; without it the outermost module called is the root.

        Args:
            model: the root.
            optimizer: its optimizer.
            name: how your code calls the model, for the texts.

        Raises:
            DevwidgetError: if `model` is no module.
        """
        self._recorder.attach_model(model, optimizer, name=name)
        self._model = model

    @property
    def trace(self) -> Trace:
        """What was seen. Complete once the block has ended; before that, what was seen so far."""
        if self._trace is not None:
            return self._trace
        return self._judged()

    def _judged(self) -> Trace:
        facts = self._recorder.collect_trace()
        return rules.judge(dataclasses.replace(facts, virtual_gpus=self._gpus) if self._gpus else facts)

    def __enter__(self) -> Self:
        self._recorder.refuse_again()
        self._begin()
        return self

    @all_or_nothing
    def _begin(self) -> None:
        self._gpus = virtual_gpus()
        self._recorder.__enter__()
        if self._gpus:
            self._recorder.watch_memory(simulator.memory())
        elif torch.cuda.device_count():  # asks NVML, makes no context
            from devwidget.capture.memory.cuda_memory import CudaMemory

            self._recorder.watch_memory(CudaMemory())

    @sure_exit
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        with uninterrupted():
            self._recorder.__exit__(kind, error, trace)
            self._gpus = max(self._gpus, virtual_gpus())  # started inside
            self._trace = self._judged()  # a rule that is struck by a signal would be taken for one that crashes
            _remember(self._trace.findings)
            if self._written is not None:
                self._written.write_files(self._trace, self._model)
        swallowed = self._swallows and isinstance(error, Exception) and not is_from_handler(error)
        return True if swallowed else None


class _Step(Recording):
    """What the step raises is in the trace, and nowhere else."""

    _swallows = True


def record(
    *,
    heal: bool = False,
    allow: str | Iterable[str] = (),
    verify_hops: bool = False,
    path: str | os.PathLike[str] | None = None,
    checksums: bool = False,
) -> Recording:
    """Watch any code: `with devwidget.record() as recording: ...`.

    Without `heal` the code behaves exactly as outside, and an exception goes its way and is in the trace too.

    Args:
        heal: move stray tensors where they belong and go on.
        allow: hops and waits that are meant, as for `devwidget.allow`; they are in the trace, and not reported.
        verify_hops: as for `trace`.
        path: in a job of several ranks, a folder where each leaves what it held at the end and its trace; it is the same for
            all, and `devwidget.ranks(path)` puts them together.
        checksums: with `path`, tell of each parameter what is in it, so that copies that drifted apart are found.

    Returns:
        A context manager; its `trace` is complete when the block has ended.

    Raises:
        DevwidgetError: if one of `allow` is no hop, or `path` is given to a process that is no rank.
    """
    written = None
    if path is not None:
        from devwidget.distributed.report import RankWriter

        written = RankWriter(path, checksums, lambda: read_memory(virtual_gpus()))
    return Recording(heal=heal, allow=allow, verify_hops=verify_hops, written=written)


def trace(
    model: nn.Module,
    batch: Any,
    *,
    loss_fn: Callable[..., Any] | None = None,
    target: Any = None,
    optimizer: torch.optim.Optimizer | None = None,
    backward: bool | None = None,
    heal: bool = True,
    restore: bool = True,
    allow: str | Iterable[str] = (),
    name: str = "",
    progress: Callable[[str], None] | None = None,
    verify: Verify = "auto",
    verify_hops: bool = False,
) -> Trace:
    """Run one training step on a batch and report every tensor in the wrong place.

    Args:
        model: runs as it is, in its own training mode.
        batch: a tensor is one argument; a tuple or list is `*args`; a mapping is `**kwargs`; `Inputs` is both; a
            DataLoader or iterator gives its next item. A loader and what it draws from are put back, an iterator is copied
            first; one that cannot be copied, such as a generator, is one item further, and `not_restored` says so.
        loss_fn: called with (output, target), or with the output alone if it takes no more.
        target: for the loss.
        optimizer: steps after backward.
        backward: whether to run it; by default if there is a loss.
        heal: repair each fault and go on, so that one run finds them all.
        restore: leave model, loss, optimizer, batch, random state and flags bit-identical; what cannot be put back is
            named in `not_restored`. A batch that was computed with gradients is cut from its graph, which is not run.
        allow: hops and waits that are meant, as for `devwidget.allow`; they are in the trace, and not reported.
        name: how your code calls the model, for the texts.
        progress: told each phase as it begins.
        verify: try the fixes: run the step twice with the edited code, without healing, and hold what it gives against the
            same step with everything on one device. What passes is sure, and nothing else is.
            Needs `heal` and `restore`. `"auto"` does so where nothing outside of the step can notice: in a process without a
            process group, while no other thread runs, after a step that took five seconds at most and has left nothing that is
            not put back. Elsewhere each fix says why it was `not_tried`, and has `try_it()`. True tries them everywhere: what
            the step writes or sends is written or sent again, and `noticed` names what was seen of that; False nowhere.
        verify_hops: compare checksums at both ends of every copy between GPUs that `.to` or `copy_` makes: on some machines
            they arrive changed. Each copy is waited for.

    Returns:
        The trace. A step that failed for good is in it, with `error`, and does not raise.

    Raises:
        DevwidgetError: if the model is no module, the batch does not fit (`BatchError`), one of `allow` is no hop, or `verify`
            is none of the three.
    """
    refuse_model(model)
    refuse_optimizer(optimizer)
    refuse_loss(loss_fn)
    refuse_verify(verify)
    source = batch if is_source(batch) else None
    goes_on = source is not None and moves_on(source)
    given: list[Arguments] = []

    def inputs() -> Arguments:
        """The same ones for every run: a loader would give others the next time."""
        if not given:
            given.append(make_arguments(model, batch, target=target, has_loss=loss_fn is not None))
        return given[0]

    step = Step(model, Arguments((), {}), loss_fn, optimizer, backward)
    recording = _Step(heal=heal, allow=allow, verify_hops=verify_hops)
    watch = _watch() if verify is not False and heal and restore else None
    kept_source = None if goes_on else source
    found, _ = _stepped(step, inputs, recording, name, progress, restore=restore, source=kept_source, watch=watch)
    found = dataclasses.replace(found, step_runs=1)
    if any(fix.edits for finding in found.findings for fix in finding.fixes):
        from devwidget.trying.offers import LiveStep, offered

        if watch is not None:
            found = _verified(found, dataclasses.replace(step, inputs=inputs()), watch, verify, allow, name)
        parts = {"model": model, "batch": batch, "loss_fn": loss_fn, "target": target, "optimizer": optimizer}
        found = offered(found, LiveStep(parts, functools.partial(try_fix, backward=backward, allow=allow, name=name)))
    if goes_on:
        found = dataclasses.replace(found, not_restored=(*found.not_restored, ITEM_TAKEN))
    _remember(found.findings)
    return found


def refuse_verify(verify: object) -> None:
    """Refuse what says neither whether nor when fixes are tried.

    Raises:
        DevwidgetError: with the three values that do.
    """
    if not (is_a(verify, bool) or (is_a(verify, str) and verify == "auto")):
        raise DevwidgetError(
            Message(
                "verify={value} says not when fixes are tried", value=word_of(verify) if not is_a(verify, str) else repr(verify)
            ),
            instead='verify="auto", verify=True or verify=False',
        )


def _watch() -> Watch:
    from devwidget.trying.outside.watch import Watch

    return Watch()


def _verified(found: Trace, step: Step, watch: Watch, verify: Verify, allow: str | Iterable[str], name: str) -> Trace:
    """The trace with its fixes tried, where that is harmless or asked for; else with why they were not."""
    from devwidget.trying.offers import left_untried
    from devwidget.trying.outside.conditions import reasons
    from devwidget.trying.trials import tried

    why = tuple(reasons(found, watch.effects))
    if why and verify != True:  # noqa: E712  "auto" is true too
        return left_untried(found, why[0])
    found = tried(found, _subjects(step), _again(step, allow, name), is_asked=verify is True)
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
    from devwidget.trying.outside.quiet import quiet
    from devwidget.trying.trials import tried_alone

    inputs = make_arguments(model, batch, target=target, has_loss=loss_fn is not None)
    step = Step(model, inputs, loss_fn, optimizer, backward)
    recording = _Step(heal=True, allow=allow)
    with quiet() as own:
        found, _ = _stepped(step, lambda: inputs, recording, name, progress, restore=True, inside=own.inside)
    found = dataclasses.replace(found, step_runs=1)
    return tried_alone(found, _subjects(step), _again(step, allow, name), fix)


def _subjects(step: Step) -> Subjects:
    from devwidget.trying.subjects import Subjects

    return Subjects(step.model, step.inputs, step.loss_fn, step.optimizer)


def _again(step: Step, allow: str | Iterable[str], name: str) -> Again:
    from devwidget.trying.comparison import Run, results_of

    def again(heal: bool, inputs: Callable[[], Arguments], inside: Inside) -> list[Run]:
        first, second = (_Step(heal=heal, allow=allow) for _ in range(2))
        left: list[Results] = []

        def then(given: Arguments, seen: dict[str, Any]) -> None:
            left.append(results_of(seen, step.model))
            if not first.trace.error:
                seen.clear()
                _run(dataclasses.replace(step, inputs=given), second, name, None, seen, inside)
                left.append(results_of(seen, step.model))

        trace, _ = _stepped(step, inputs, first, name, None, restore=True, inside=inside, then=then)
        return [Run(each, results) for each, results in zip((trace, second._trace), left, strict=False) if each is not None]

    return again


_last: tuple[Finding, ...] | None = None
"""Of the last trace or explanation, for `%devwidget fix`; records hold nothing alive. None before the first."""


def _remember(findings: tuple[Finding, ...]) -> None:
    global _last
    _last = findings


def last_findings() -> tuple[Finding, ...]:
    """What the last trace, recording or explanation found."""
    return _last or ()


def _stepped(
    step: Step,
    inputs_of: Callable[[], Arguments],
    recording: _Step,
    name: str,
    progress: Callable[[str], None] | None,
    *,
    restore: bool,
    source: Any = None,
    watch: Watch | None = None,
    inside: Inside = contextlib.nullcontext,
    then: Callable[[Arguments, dict[str, Any]], None] | None = None,
) -> tuple[Trace, Any]:
    """One recorded step, and the output of the model.

    Args:
        source: what the inputs are taken from and that is to be put back.
        inside: what each of its threads enters.
        then: told the inputs and what the step has left, before that is put back.
    """
    from devwidget.capture.restore import keep_state

    model, optimizer, loss_fn = step.model, step.optimizer, step.loss_fn
    seen: dict[str, Any] = {}
    outside = contextlib.nullcontext() if watch is None else watch
    keeps = keep_state(model, optimizer, loss_fn) if restore else contextlib.nullcontext()
    with uninterrupted(), outside, keeps as kept, Undo() as undo:
        if kept is not None and source is not None:
            kept.add_source(source)
        with interruptible():
            inputs = inputs_of()
        if kept is not None:
            kept.add_roots(batch=(inputs.args, inputs.kwargs), target=inputs.target)
            inputs = _without_graphs(inputs, recording._recorder, kept, undo)
            recording._recorder.enter_beside(kept.watch_writes)
            if watch is not None:
                watch.begin(kept)
                inside = watch.own.inside
        _run(dataclasses.replace(step, inputs=inputs), recording, name, progress, seen, inside)
        if then is not None:
            then(inputs, seen)
    trace = recording.trace if kept is None else dataclasses.replace(recording.trace, not_restored=kept.not_restored)
    return trace, seen.get("out")


def _run(
    step: Step, recording: _Step, name: str, progress: Callable[[str], None] | None, seen: dict[str, Any], inside: Inside
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
                ran = progress is not None or step.runs_in(phase)
                recording._recorder.mark_phase(phase, lambda: _placed(step.model, step.optimizer).memory, ran=ran)


def _without_graphs(inputs: Arguments, recorder: Recorder, kept: SavedState, undo: Undo) -> Arguments:
    """Older graphs are left alone until the end of the step; the batch without its own."""
    from devwidget.capture.step.graphs import CUT, cut_from_graphs, graphs_kept

    undo.enter_context(graphs_kept(lambda leaves: kept.add_roots(gradients=leaves), recorder.is_new, recorder.add_note))
    inputs, cuts = cut_from_graphs(inputs)
    for tensor, original in cuts:
        recorder.stand_in(tensor, original)
    if cuts:
        recorder.add_note(CUT)
    return inputs


def check(
    model: nn.Module,
    batch: Any,
    *,
    fail_on: Iterable[Severity] = ("error", "warning"),
    allow: str | Iterable[str] = (),
    baseline: str | pathlib.Path | Trace | None = None,
    **step: Any,
) -> Trace:
    """`trace` for test suites: raises if something is in the wrong place.

    Args:
        model: as for `trace`.
        batch: as for `trace`.
        fail_on: severities that fail.
        allow: kinds of findings that are meant, and hops such as `"cuda:0 -> cpu"`.
        baseline: an earlier trace, or where it was saved: only what it had not fails.
        step: further arguments of `trace`.

    Returns:
        The trace, if it is clean.

    Raises:
        PlacementError: with the report.
        DevwidgetError: if one of `allow` is neither a kind nor a hop.
    """
    __tracebackhide__ = True  # pytest shows the report, and the line of the test
    hops, kinds = allowed(allow)
    severities = _severities(fail_on)
    _refuse_unknown(step)
    result = trace(model, batch, allow=hops, **step)
    refuse_findings(result, fail_on=severities, kinds=kinds, baseline=baseline)
    return result


def refuse_findings(
    found: Trace, *, fail_on: Iterable[Severity], kinds: set[str], baseline: str | pathlib.Path | Trace | None = None
) -> None:
    """What `check` does with a trace.

    Args:
        found: the trace.
        fail_on: severities that fail.
        kinds: kinds of findings that are meant.
        baseline: as for `check`.

    Raises:
        PlacementError: with the report.
    """
    __tracebackhide__ = True
    severities = _severities(fail_on)
    known = comparison(_trace_of(baseline), found) if baseline is not None else Comparison(new=found.findings)
    bad: list[Finding] = [f for f in known.new if f.severity in severities and f.kind not in kinds]
    error = "" if known.error_before else found.error
    if bad or error:
        failed = PlacementError("\n\n".join([*map(str, bad), *([error] if error else [])]))
        failed.trace = found
        raise failed


def compare(before: str | pathlib.Path | Trace, after: str | pathlib.Path | Trace) -> Comparison:
    """What a change did: findings fixed and new, hops and bytes, peaks.

    Args:
        before: a trace, or where it was saved.
        after: the same, after the change.

    Returns:
        A frozen record to print, with `.to_html(path)` and `.save(path)`.

    Raises:
        DevwidgetError: if one of them is no trace.
    """
    return comparison(_trace_of(before), _trace_of(after))


def _trace_of(given: str | pathlib.Path | Trace) -> Trace:
    record: Any = load(given) if isinstance(given, str | pathlib.Path) else given
    if not isinstance(record, Trace):
        raise DevwidgetError(
            Message("a {kind} is no trace", kind=class_name(type(record))), instead="devwidget.compare(before, after)"
        )
    return record


def allowed(allow: str | Iterable[str]) -> tuple[list[str], set[str]]:
    """Hops, and kinds of findings."""
    words = list(words_of(allow, "allow", _ALLOW_EXAMPLE))
    known = [rule.kind for rule in rules.all_rules()]
    hops = [word for word in words if "->" in word]
    for word in words:
        if word not in hops and word not in known:
            facts = {"word": repr(word), "hint": nearest(word, known)}
            problem = Message("{word} is neither a kind of finding nor a hop{hint}", **facts)
            raise DevwidgetError(problem, instead=_ALLOW_EXAMPLE)
    return hops, set(words) - set(hops)


def _severities(fail_on: Iterable[Severity]) -> set[Severity]:
    known: tuple[Severity, ...] = get_args(Severity)
    chosen = set(words_of(fail_on, "fail_on", 'fail_on=("error", "warning")'))
    for word in sorted(chosen.difference(known)):
        raise DevwidgetError(
            Message("{word} is no severity{hint}", word=repr(word), hint=nearest(word, known)),
            instead=Message("one of {known}", known=", ".join(known)),
        )
    return {word for word in known if word in chosen}


def _refuse_unknown(step: Iterable[str]) -> None:
    known = inspect.signature(trace).parameters
    for name in step:
        if name not in known:
            raise DevwidgetError(
                Message("`check` knows no argument `{name}`{hint}", name=name, hint=nearest(name, known)),
                instead=Message("one of {known}", known=", ".join(known)),
            )


def explain(error: BaseException | None = None) -> Explanation:
    """Why the last device or dtype exception was raised, read from its traceback; nothing is run again.

    Args:
        error: an exception; by default the one being handled, else the last one that nobody caught.

    Returns:
        A frozen record to print; `findings` is empty for an exception that is about something else.

    Raises:
        DevwidgetError: if there is no exception.
    """
    from devwidget import post_mortem

    told = post_mortem.explain(error)
    _remember(told.findings)
    return told


def edits_to_apply() -> dict[str, list[Edit]] | None:
    """The first fix of every finding of the last trace or explanation, by file.

    Before the first of them, the last exception is explained; None if there is none.
    """
    from devwidget import post_mortem

    if _last is None and post_mortem.last_error() is not None:
        explain()
    return None if _last is None else edits_of(_last)


def edits_of(findings: Iterable[Finding]) -> dict[str, list[Edit]]:
    """The edits of the first fix of every finding, each once, by file."""
    from devwidget import applying

    return applying.edits_of(findings)


def edited_text(file: str, edits: Iterable[Edit]) -> str:
    """The text of a file or cell after its edits."""
    from devwidget import applying

    return applying.after(file, edits)


def refuse_edits(edits: Mapping[str, list[Edit]]) -> None:
    """Refuse them all if one of them cannot be applied."""
    from devwidget import applying

    applying.refuse(edits)


def write_edits(file: str, edits: Iterable[Edit]) -> pathlib.Path:
    """Write edits into a file of the user; the backup."""
    from devwidget import applying

    return applying.write(file, edits)


def is_about_placement(error: BaseException) -> bool:
    """A quick look at the words of an exception: is it worth an explanation?"""
    from devwidget import post_mortem

    return post_mortem.is_about_placement(error)


def load(path: str | pathlib.Path) -> Any:
    """A saved record: a Snapshot, a Trace, a Plan, an Explanation or a Finding.

    Args:
        path: a file that `.save(path)` wrote.

    Returns:
        The record, as it was.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not one of ours, with the place in the file where it differs.
    """
    from devwidget.records.loading import json_io  # the typed reader is built when a file is opened

    return json_io.load(path)


def open(path: str | pathlib.Path) -> Any:
    """A file of another tool as a record, or a saved record.

    Args:
        path: a memory snapshot that `torch.cuda.memory._dump_snapshot` wrote, a trace of `torch.profiler`, a dump of the
            flight recorder of a rank or a folder of them, or what `load` takes.

    Returns:
        Of a memory snapshot or a profile a trace; of dumps the cluster of the ranks, with what each waits for. What the file
            does not say is inferred, and called so. No class that the file names is loaded.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is none of these.
    """
    from devwidget.opening import open_file

    return open_file(path)


@overload
def plan(
    model: nn.Module,
    batch: Any,
    *,
    gpus: int = ...,
    memory: int | str | Sequence[int | str] | None = ...,
    card: str | None = ...,
    loss_fn: Callable[..., Any] | None = ...,
    target: Any = ...,
    optimizer: torch.optim.Optimizer | type[torch.optim.Optimizer] | None = ...,
    placement: str | Mapping[str, Any] = ...,
    parallel: None = ...,
) -> Plan: ...


@overload
def plan(
    model: nn.Module,
    batch: Any,
    *,
    memory: int | str | Sequence[int | str] | None = ...,
    card: str | None = ...,
    loss_fn: Callable[..., Any] | None = ...,
    target: Any = ...,
    optimizer: torch.optim.Optimizer | type[torch.optim.Optimizer] | None = ...,
    parallel: Mapping[str, int],
    parallelize: Callable[..., Any] | None = ...,
    microbatches: int | None = ...,
) -> ParallelPlan: ...


def plan(
    model: nn.Module,
    batch: Any,
    *,
    gpus: int = 0,
    memory: int | str | Sequence[int | str] | None = None,
    card: str | None = None,
    loss_fn: Callable[..., Any] | None = None,
    target: Any = None,
    optimizer: torch.optim.Optimizer | type[torch.optim.Optimizer] | None = None,
    placement: str | Mapping[str, Any] = "as is",
    parallel: Mapping[str, int] | None = None,
    parallelize: Callable[..., Any] | None = None,
    microbatches: int | None = None,
) -> Plan | ParallelPlan:
    """Predict the peak memory of one step on GPUs that are not here; a copy without values runs, the model is only read.

    Args:
        model: read, and never run itself.
        batch: as for `trace`.
        gpus: how many there would be; with `parallel` as many as the mesh has ranks.
        memory: of each, as for `simulate`; only what is allocated is held against it.
        card: in its place, the kind of each, as for `simulate`: then what the allocator reserves, cuBLAS's workspaces and
            CUDA's context are predicted too, and it fits if all of that does.
        loss_fn: as for `trace`.
        target: as for `trace`.
        optimizer: an optimizer of the model, or a class; with one, memory is that of the second step, with its state.
        placement: "as is" (a model on the cpu is placed on cuda:0), "data parallel", a device map as accelerate
            writes it, or "auto" for accelerate's proposal.
        parallel: in place of `gpus`, a mesh for `torch.distributed`, such as `{"dp": 32, "tp": 8}`: a step of one rank of each
            kind is run with fake tensors, on the batch of one rank.
        parallelize: your function of model and mesh that splits the model in place, or returns the part of a rank, such as one
            that calls `fully_shard`; by default `ddp` is DistributedDataParallel, of `dp` or `fsdp` each block of a list is one
            unit of FSDP2, `{"replicate": 2, "shard": 4}` is HSDP, and `pp` has stages of equal length.
        microbatches: of a mesh with `pp`; as many as there are stages by default.

    Returns:
        A frozen record to print, with `.fits`, `.devices`, `.to_frame()`, `.to_html(path)` and `.save(path)`; for a mesh one
            with `.ranks`, an entry for each kind of rank.

    Raises:
        DevwidgetError: if the placement cannot be used, or the step fails in it; where virtual GPUs are running or real ones
            were used, also if the model cannot be sent to a child process, which plans there.
        SimulationError: if the step decides by values that the weights make of the batch, which a plan does not have.
    """
    refuse_loss(loss_fn)
    if (parallel, parallelize, microbatches) != (None, None, None):
        from devwidget.planning.parallel import make_parallel_plan

        ours: dict[str, Any] = {"memory": memory, "card": card, "parallel": parallel, "parallelize": parallelize}
        step: dict[str, Any] = {"loss_fn": loss_fn, "target": target, "optimizer": optimizer}
        return make_parallel_plan(model, batch, gpus=gpus, placement=placement, microbatches=microbatches, **ours, **step)

    from devwidget.planning import make_plan

    asked: dict[str, Any] = {"gpus": gpus, "memory": memory, "card": card, "placement": placement}
    return make_plan(model, batch, loss_fn=loss_fn, target=target, optimizer=optimizer, **asked)


def place(
    model: nn.Module,
    batch: Any,
    *,
    gpus: int,
    memory: int | str | Sequence[int | str] | None = None,
    card: str | None = None,
    loss_fn: Callable[..., Any] | None = None,
    target: Any = None,
    optimizer: torch.optim.Optimizer | type[torch.optim.Optimizer] | None = None,
) -> Layout:
    """Propose where the blocks of a model go, so that the step fits with few hops; each proposal is run on virtual GPUs.

    Weights, what is kept for backward, gradients and the optimizer's state of each block count, from one step without values.

    Args:
        model: read, and never run itself.
        batch: as for `trace`.
        gpus: how many there would be.
        memory: of each, as for `plan`.
        card: in its place, as for `plan`.
        loss_fn: as for `trace`.
        target: as for `trace`.
        optimizer: as for `plan`.

    Returns:
        A frozen record to print, with `.device_map` for accelerate and transformers, `.fits`, and what was rejected and why.

    Raises:
        DevwidgetError: if the blocks run on no split, or accelerate is not there, whose hooks carry activations between GPUs.
        SimulationError: as for `plan`.
    """
    from devwidget.planning.layouts import make_layout

    refuse_loss(loss_fn)
    asked: dict[str, Any] = {"gpus": gpus, "memory": memory, "card": card, "loss_fn": loss_fn, "optimizer": optimizer}
    return make_layout(model, batch, target, asked)


@overload
def show(model: Cluster) -> RanksWidget: ...


@overload
def show(
    model: nn.Module,
    batch: Any = ...,
    *,
    loss_fn: Callable[..., Any] | None = ...,
    target: Any = ...,
    optimizer: torch.optim.Optimizer | None = ...,
    batch_expression: str = ...,
) -> DeviceWidget: ...


def show(
    model: nn.Module | Cluster,
    batch: Any = None,
    *,
    loss_fn: Callable[..., Any] | None = None,
    target: Any = None,
    optimizer: torch.optim.Optimizer | None = None,
    batch_expression: str = "",
) -> DeviceWidget | RanksWidget:
    """Open the panel on a live model. The panel holds the model weakly: `del model` frees it.

    Args:
        model: what the panel shows; what `devwidget.ranks()` returns for all ranks of a job, for which nothing else is given.
        batch: as for `trace`; it can also be chosen in the panel.
        loss_fn: as for `trace`.
        target: as for `trace`.
        optimizer: as for `trace`.
        batch_expression: the batch as an expression of the notebook, evaluated at each trace.

    Returns:
        The panel, a widget that the notebook displays.

    Raises:
        DevwidgetError: if `model` is no module.
    """
    if is_a(model, Cluster):
        from devwidget.ui.ranks_panel import RanksWidget

        return RanksWidget(model, asker_of(model))

    from devwidget.live import Engine, open_panel
    from devwidget.rereading import Rereader

    refuse_loss(loss_fn)

    engine = Engine(Rereader(virtual_gpus).snapshot, trace, lambda: read_memory(virtual_gpus()), _asking_the_others, try_fix)
    return open_panel(model, optimizer, {"batch": batch, "loss": loss_fn, "target": target}, batch_expression, engine)


def serve(model: nn.Module | None = None, *, folder: str | os.PathLike[str] | None = None) -> Agent:
    """Answer questions about this rank, on a socket that only its user can reach, also while it waits in a collective.

    One line in a training script; `devwidget.ranks(folder)` asks, in another process. It only reads: no collective, nothing
    that waits for a GPU, no operator. A rank that nobody asks does nothing but count the steps of its optimizers.

    Args:
        model: its model; without one the largest that a variable of the main thread holds when somebody asks.
        folder: of the job, the same for all ranks of a machine; without one `$DEVWIDGET_RANKS`, or one that is named after the
            job of torchrun or Slurm.

    Returns:
        The agent, which ends with the process, with its `stop()`, or with a `with` block.

    Raises:
        DevwidgetError: if this process is no rank, the folder is open to others, or torch has no such server.
    """
    from devwidget.distributed.agent import Agent

    return Agent(model, folder, lambda: read_memory(virtual_gpus()))


def ranks(source: Any = None, *, patience: float = 5.0) -> Cluster:
    """All ranks of a job in one record, also of one that hangs: their states, each distinct placement once, and findings.

    Args:
        source: the folder in which they answer or have written, several, some files, or a view of ipyparallel; without one the
            job of this user that has started last on this machine.
        patience: seconds in one collective after which a rank is said to hang.

    Returns:
        A frozen record to print, with `.save(path)`.

    Raises:
        DevwidgetError: if no rank is there, or other users may enter the folder.
    """
    from devwidget.distributed.sources import hear_ranks
    from devwidget.rules.ranks.over_ranks import judge_cluster

    def ask() -> Cluster:
        return judge_cluster(hear_ranks(source, _served, patience=patience))

    return may_be_asked_again(ask(), ask)


def pipeline(schedule: Any, *, ranks: int = 4, microbatches: int = 8, stages_per_rank: int | None = None) -> Pipeline:
    """What each rank of a pipeline computes when, and how long it waits: the order of torch's own visualiser, without a GPU.

    Every stage is taken to be as long as the others, a backward twice as long as a forward, and messages to take no time.

    Args:
        schedule: a schedule of `torch.distributed.pipelining`, which knows its sizes; or a name such as `"1F1B"`, or a class.
        ranks: of the pipeline, for a name or a class.
        microbatches: of a batch, for a name or a class.
        stages_per_rank: for a name or a class; by default what the schedule needs at least.

    Returns:
        A frozen record to print or show, with `.idle`, `.ranks`, `.to_html(path)` and `.save(path)`.

    Raises:
        DevwidgetError: if torch has no such schedule, or refuses these sizes.
    """
    from devwidget.planning.parallel.pipeline import read_pipeline

    return read_pipeline(schedule, ranks, microbatches, stages_per_rank)


def _asking_the_others() -> Callable[[], Cluster] | None:
    """How the ranks of this job are asked, if this process answers as one; nothing is loaded to find out."""
    agents = sys.modules.get("devwidget.distributed.agent")
    agent = agents.serving_agent() if agents is not None else None
    return None if agent is None else lambda: ranks(agent.folder)


def _served() -> tuple[int, str]:
    """In an engine of ipyparallel: have it answer, unless it does already; its rank, and the folder of its socket."""
    from devwidget.distributed.agent import serving_agent

    agent = serving_agent() or serve()
    return agent.rank, str(agent.folder)


def model_names() -> list[str]:
    """Variables of the notebook that hold a model, newest last."""
    from devwidget import live

    return live.model_names()


def virtual_gpus() -> int:
    """How many virtual GPUs are active, 0 for none."""
    active = simulator.active()
    return active.gpus if active is not None else 0
