"""The public functions: they wire the layers together, and load the screen only when it is shown."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import pathlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import nn

from devwidget import extras
from devwidget import gpus as gpus
from devwidget.allowed_findings import parse_allowed as parse_allowed
from devwidget.allowed_findings import parse_severities, trace_of
from devwidget.allowed_findings import refuse_findings as refuse_findings
from devwidget.capture import background_births as background_births
from devwidget.capture.devices import read_memory
from devwidget.capture.explain import folded_frames as folded_frames
from devwidget.capture.recording.allowed_transfers import allow
from devwidget.capture.step.batch import ITEM_TAKEN, Arguments, Inputs, is_loader, make_arguments, moves_on
from devwidget.capture.step.step import Step
from devwidget.capture.validation import (
    refuse_call_back,
    refuse_flags,
    refuse_loss,
    refuse_model,
    refuse_optimizer,
    refuse_text,
    refuse_verify,
)
from devwidget.fix_writer import apply_to_text as apply_to_text
from devwidget.fix_writer import edits_by_file as edits_by_file
from devwidget.fix_writer import edits_to_apply as edits_to_apply
from devwidget.fix_writer import refuse_edits as refuse_edits
from devwidget.fix_writer import remember_findings
from devwidget.fix_writer import write_edits as write_edits
from devwidget.gpus import simulate
from devwidget.language.speaking import set_language as set_language
from devwidget.recording import (
    Recording,
    StepRecording,
    read_snapshot,
    record_step,
)
from devwidget.recording import virtual_gpus as virtual_gpus
from devwidget.records.comparison import Comparison
from devwidget.records.errors import BatchError, DevwidgetError, PlacementError, SimulationError
from devwidget.records.explanation import Explanation
from devwidget.records.finding import Severity
from devwidget.records.schema.public_calls import refuse_unknown, says_what_fits
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.saved_files import load as load
from devwidget.saved_files import open as open
from devwidget.views.compare import compare_traces

if TYPE_CHECKING:
    import os

    from devwidget.capture.restore import SavedState
    from devwidget.panel.panel import DeviceWidget
    from devwidget.trying.offers import SeenCalls
    from devwidget.trying.step_trials import Verify


__all__ = [
    "BatchError", "DevwidgetError", "Inputs", "PlacementError", "Recording", "SimulationError", "allow", "check", "compare",
    "explain", "is_about_placement", "load", "open", "record", "set_language", "show", "simulate", "snapshot", "trace",
]  # fmt: skip


@says_what_fits
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
    return read_snapshot(model, optimizer)


@says_what_fits
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
        A context manager; its `trace` is complete when the block has ended. Nothing is run again for it: `fix.try_it()` tries
            an edit on the last call of the module, for as long as that module and what it was called with are there.

    Raises:
        DevwidgetError: if one of `allow` is no hop, or `path` is given to a process that is no rank.
    """
    refuse_flags(heal=heal, verify_hops=verify_hops, checksums=checksums)
    written = None
    if path is not None:
        home = extras.need_home("recorder", "path", "devwidget.record(path=...)")
        written = home.join_recording(path, checksums, lambda: read_memory(virtual_gpus()))
    return Recording(heal=heal, allow=allow, verify_hops=verify_hops, written=written, offer=_offer_trials)


def _offer_trials(found: Trace, calls: SeenCalls, error: BaseException | None) -> Trace:
    from devwidget.trying.call_trials import offer_trials  # the trials are loaded with the first edit

    return offer_trials(found, calls, error)


@says_what_fits
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
            DataLoader or iterator gives its next item. A loader and what it draws from are put back, an iterator is one item
            further, and `not_restored` says so.
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
        verify: try the fixes: run the step with the edited code, without healing, and hold what it gives against the same
            step with everything on one device; where a step leaves more than gradients a second one has to run after it, and
            is held against another if the first has left something else than on one device. What passes is sure, and nothing
            else is.
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
    refuse_flags(heal=heal, restore=restore, verify_hops=verify_hops, **({} if backward is None else {"backward": backward}))
    refuse_text("name", name, 'name="model"')
    refuse_call_back("progress", progress, "progress=print")
    take = functools.cache(functools.partial(make_arguments, model, batch, target=target, has_loss=loss_fn is not None))
    source = batch if is_loader(batch) else None
    step = Step(model, Arguments((), {}), loss_fn, optimizer, backward, allow, name)
    recording = StepRecording(heal=heal, allow=allow, verify_hops=verify_hops)
    watch: TrialWatch | None = None
    then: Callable[[Arguments, dict[str, Any], SavedState], None] | None = None
    if verify is not False and heal and restore:
        from devwidget.trying.side_effects import TrialWatch

        watch, then = TrialWatch(), recording.keep_results
    found, _ = record_step(step, take, recording, progress, restore=restore, source=source, watch=watch, then=then)
    found = dataclasses.replace(found, step_runs=1)
    if any(fix.edits for finding in found.findings for fix in finding.fixes):
        from devwidget.trying.offers import LiveParts, LiveStep, offer_step
        from devwidget.trying.step_trials import try_fix, verify_fixes

        if watch is not None:
            again = dataclasses.replace(step, inputs=take())
            found = verify_fixes(found, recording.left, again, watch.effects, verify)
        parts = LiveParts({"model": model, "batch": batch, "loss_fn": loss_fn, "target": target, "optimizer": optimizer})
        found = offer_step(found, LiveStep(parts, functools.partial(try_fix, backward=backward, allow=allow, name=name)))
    if moves_on(batch):
        found = dataclasses.replace(found, not_restored=(*found.not_restored, ITEM_TAKEN))
    remember_findings(found.findings)
    return found


@says_what_fits
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
    hops, kinds = parse_allowed(allow)
    severities = parse_severities(fail_on)
    refuse_unknown("check", step, inspect.signature(trace).parameters)
    result = trace(model, batch, allow=hops, **step)
    refuse_findings(result, fail_on=severities, kinds=kinds, baseline=baseline)
    return result


@says_what_fits
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
    return compare_traces(trace_of(before), trace_of(after))


@says_what_fits
def explain(error: BaseException | None = None) -> Explanation:
    """Why the last device or dtype exception was raised, read from its traceback; nothing is run again.

    Args:
        error: an exception; by default the one being handled, else the last one that nobody caught.

    Returns:
        A frozen record to print; `findings` is empty for an exception that is about something else. `fix.try_it()` tries an
            edit on the call of the model that failed, for as long as that model and what it was called with are there.

    Raises:
        DevwidgetError: if there is no exception.
    """
    from devwidget import post_mortem

    found = error if error is not None else post_mortem.last_error()
    told = post_mortem.explain(found)
    if found is not None and any(fix.edits for finding in told.findings for fix in finding.fixes):
        from devwidget.trying.call_trials import offer_explained  # the trials are loaded with the first edit

        told = offer_explained(told, found)
    remember_findings(told.findings)
    return told


def is_about_placement(error: BaseException) -> bool:
    """A quick look at the words of an exception: is it worth an explanation?"""
    from devwidget import post_mortem

    return post_mortem.is_about_placement(error)


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


@overload
def show(model: object) -> Any: ...


@says_what_fits
def show(
    model: Any,
    batch: Any = None,
    *,
    loss_fn: Callable[..., Any] | None = None,
    target: Any = None,
    optimizer: torch.optim.Optimizer | None = None,
    batch_expression: str = "",
) -> Any:
    """Open the panel on a live model. The panel holds the model weakly: `del model` frees it.

    Args:
        model: a module, or what an extra has a panel for: the ranks of a job, or a watched run, live or read by
            `devwidget.open`, for which nothing else is given.
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
    from devwidget.live_model import Engine, open_panel
    from devwidget.panel.sections import find_opener
    from devwidget.trying.step_trials import try_fix

    def open_model(model: Any, optimizer: torch.optim.Optimizer | None, opens: str = "") -> DeviceWidget:
        refuse_loss(loss_fn)
        refuse_text("batch_expression", batch_expression, 'batch_expression="next(iter(loader))"')
        given = {"batch": batch, "loss": loss_fn, "target": target}
        engine = Engine(snapshot, trace, lambda: read_memory(virtual_gpus()), try_fix)
        return open_panel(model, optimizer, given, batch_expression, engine, opens)

    opener = find_opener(model)
    if opener is None:
        return open_model(model, optimizer)
    return opener(model, open_model)


def find_optimizer(model: nn.Module) -> torch.optim.Optimizer | None:
    """The variable of the notebook that trains a model, if there is just one."""
    from devwidget import live_model

    refuse_model(model)
    return live_model.find_optimizer(model)


def model_names() -> list[str]:
    """Variables of the notebook that hold a model, newest last."""
    from devwidget import live_model

    return live_model.model_names()
