"""The public functions of the core. The panel is loaded only when it is shown."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import pathlib
import sys
from collections.abc import Callable, Iterable, Sequence
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
from devwidget.capture.memory.held_memory import find_memory_holders
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
from devwidget.records.finding import Edit, Fix, Severity
from devwidget.records.held_memory import HeldMemory
from devwidget.records.schema.public_calls import refuse_unknown, says_what_fits
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.style.units import format_bytes as format_bytes
from devwidget.saved_files import load as load
from devwidget.saved_files import open as open
from devwidget.views.compare import compare_traces

if TYPE_CHECKING:
    import os

    from devwidget.capture.restore import SavedState
    from devwidget.panel.panel import DeviceWidget
    from devwidget.rules.registry import Rule
    from devwidget.trying.offers import SeenCalls
    from devwidget.trying.step_trials import Verify


__all__ = [
    "BatchError", "DevwidgetError", "Inputs", "PlacementError", "Recording", "SimulationError", "allow", "check", "compare",
    "explain", "is_about_placement", "load", "memory_holders", "open", "record", "set_language", "show", "simulate",
    "snapshot", "trace",
]  # fmt: skip


@says_what_fits
def snapshot(model: nn.Module, *, optimizer: torch.optim.Optimizer | None = None) -> Snapshot:
    """Return the device of every tensor of a model: parameters, buffers, and tensors in plain attributes.

    Only reads: nothing runs, moves, or is allocated on a device.

    Args:
        model: Any module, wrapped or not.
        optimizer: Its optimizer, to include the optimizer state.

    Returns:
        A frozen record to print, with `.to_frame()`, `.to_html(path)` and `.save(path)`.

    Raises:
        DevwidgetError: If `model` is not a module or `optimizer` not an optimizer.
    """
    return read_snapshot(model, optimizer)


@says_what_fits
def record(
    *,
    heal: bool = False,
    allow: str | Iterable[str] = (),
    path: str | os.PathLike[str] | None = None,
    checksums: bool = False,
    portable: bool = False,
) -> Recording:
    """Record any code: `with devwidget.record() as recording: ...`.

    Without `heal`, behaviour is unchanged; an exception propagates and is also recorded in the trace.

    Args:
        heal: Move misplaced tensors to the device where they are needed, and continue.
        allow: Intended transfers and syncs, as for `devwidget.allow`; they are in the trace but not reported.
        path: Folder for a job of several ranks, the same for all ranks. Each rank saves its state at the end and its trace
            there; `devwidget.ranks(path)` combines them.
        checksums: With `path`, save a checksum of each parameter, to find copies that have drifted apart.
        portable: As for `trace`.

    Returns:
        A context manager; its `trace` is complete when the block has ended. Nothing is re-run for it: `fix.try_it()` verifies
            an edit on the last call of the module, while that module and its inputs are alive.

    Raises:
        DevwidgetError: If an entry of `allow` is not a transfer, or `path` is given and the process is not a rank.
    """
    refuse_flags(heal=heal, checksums=checksums, portable=portable)
    written = None
    if path is not None:
        home = extras.need_home("recorder", "path", "devwidget.record(path=...)")
        written = home.join_recording(path, checksums, lambda: read_memory(virtual_gpus()))
    return Recording(
        heal=heal,
        allow=allow,
        written=written,
        more_rules=_rules_on_request(portable),
        offer=_offer_trials,
    )


def _rules_on_request(portable: bool) -> tuple[Rule, ...]:
    if not portable:
        return ()
    return (extras.need_home("rules", "portable", "portable=True").RULE,)


def _offer_trials(found: Trace, calls: SeenCalls, error: BaseException | None) -> Trace:
    from devwidget.trying.step_trials import offer_trials  # the trials are loaded with the first edit

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
    portable: bool = False,
) -> Trace:
    """Run one training step on a batch and report every misplaced tensor.

    Args:
        model: Runs unchanged, in its current training mode.
        batch: A tensor is one argument; a tuple or list is `*args`; a mapping is `**kwargs`; `Inputs` is both; a
            DataLoader or iterator gives its next item, without its target if there is no loss. A loader and what it draws from
            are restored. An iterator is one item further afterwards, and `not_restored` says so.
        loss_fn: Called with (output, target), or with the output alone if it takes one argument.
        target: Target of the loss. Without one, the last item of the batch is the target of a loss that needs one.
        optimizer: Steps after backward.
        backward: Whether to run backward; by default if there is a loss.
        heal: Move misplaced tensors and continue, so that one run finds every fault.
        restore: Leave model, loss, optimizer, batch, random state and flags bit-identical. `not_restored` names what cannot be
            restored. A batch that was computed with gradients is detached from its graph, which is not run.
        allow: Intended transfers and syncs, as for `devwidget.allow`; they are in the trace but not reported.
        name: Name of the model in your code, for reports.
        progress: Called with the name of each phase as it begins.
        verify: Whether to verify fixes: run the step with the edited code, without healing, and compare the result with the
            same step on one device. A step that leaves more than gradients is followed by a second one; if the first left
            another state than on one device, the second is compared as well. Only fixes that pass are `sure`.
            Needs `heal` and `restore`. `"auto"` verifies only where it has no side effects: in a process without a process
            group, while no other thread runs, after a step of at most five seconds that restored everything. Otherwise
            `not_tried` of each fix says why, and `try_it()` verifies it. True always verifies: files are written and
            messages sent again, and `noticed` names the side effects that were seen. False never verifies.
        portable: Also report the lines that ran and are written for CUDA where `torch.accelerator` works for any accelerator.

    Returns:
        The trace. A step that fails does not raise; `error` of the trace has the exception.

    Raises:
        DevwidgetError: If the model is not a module, the batch does not fit (`BatchError`), an entry of `allow` is not a
            transfer, or `verify` is invalid.
    """
    refuse_model(model)
    refuse_optimizer(optimizer)
    refuse_loss(loss_fn)
    refuse_verify(verify)
    flags = {"heal": heal, "restore": restore, "portable": portable}
    refuse_flags(**flags, **({} if backward is None else {"backward": backward}))
    refuse_text("name", name, 'name="model"')
    refuse_call_back("progress", progress, "progress=print")
    take = functools.cache(functools.partial(make_arguments, model, batch, target=target, loss_fn=loss_fn))
    source = batch if is_loader(batch) else None
    step = Step(model, Arguments((), {}), loss_fn, optimizer, backward, allow, name)
    more_rules = _rules_on_request(portable)
    recording = StepRecording(heal=heal, allow=allow, more_rules=more_rules)
    watch: TrialWatch | None = None
    then: Callable[[Arguments, dict[str, Any], SavedState], None] | None = None
    if verify is not False and heal and restore:
        from devwidget.trying.side_effects import TrialWatch

        watch, then = TrialWatch(), recording.keep_results
    found, _ = record_step(step, take, recording, progress, restore=restore, source=source, watch=watch, then=then)
    found = dataclasses.replace(found, step_runs=1)
    if any(fix.edits for finding in found.findings for fix in finding.fixes):
        from devwidget.trying.offers import LiveParts, offer_step
        from devwidget.trying.step_trials import try_fix, verify_fixes

        if watch is not None:
            again = dataclasses.replace(step, inputs=take())
            run_edits = functools.partial(verify_fixes, left=recording.left, step=again, effects=watch.effects, verify=verify)
            found = run_edits(found)
            if portable:
                found = extras.need_home("rules", "portable", "portable=True").verify_edits(found, run_edits)
        parts = LiveParts({"model": model, "batch": batch, "loss_fn": loss_fn, "target": target, "optimizer": optimizer})
        run = functools.partial(try_fix, backward=backward, allow=allow, name=name)
        found = offer_step(found, parts.make_attempt(run))
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
    """Run `trace` in a test suite, and raise if a tensor is misplaced.

    Args:
        model: As for `trace`.
        batch: As for `trace`.
        fail_on: Severities that fail.
        allow: Kinds of findings to ignore, and intended transfers such as `"cuda:0 -> cpu"`.
        baseline: An earlier trace or its file: only new findings fail.
        step: Further arguments of `trace`.

    Returns:
        The trace, if it passes.

    Raises:
        PlacementError: With the report.
        DevwidgetError: If an entry of `allow` is neither a kind nor a transfer.
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
    """Return what changed between two traces: findings, transfers and peaks.

    Args:
        before: A trace or its file.
        after: The same, after the change.

    Returns:
        A frozen record to print, with `.to_html(path)` and `.save(path)`.

    Raises:
        DevwidgetError: If one of them is not a trace.
    """
    return compare_traces(trace_of(before), trace_of(after))


@says_what_fits
def explain(error: BaseException | None = None) -> Explanation:
    """Explain the last device or dtype exception from its traceback, without re-running code.

    Args:
        error: An exception; by default the one being handled, else the last uncaught one.

    Returns:
        A frozen record to print; `findings` is empty for an exception about something else. `fix.try_it()` verifies an edit
            on the call of the model that failed, while that model and its inputs are alive.

    Raises:
        DevwidgetError: If there is no exception.
    """
    from devwidget import post_mortem

    found = error if error is not None else post_mortem.last_error()
    told = post_mortem.explain(found)
    if found is not None and any(fix.edits for finding in told.findings for fix in finding.fixes):
        from devwidget.trying.step_trials import offer_explained  # the trials are loaded with the first edit

        told = offer_explained(told, found)
    remember_findings(told.findings)
    return told


@says_what_fits
def memory_holders() -> HeldMemory:
    """Return who keeps memory of each device in use: variables, running calls, displayed results, the last error.

    Only reads. What frees memory is named only where nothing else that devwidget can count keeps it. Objects in reference
    cycles are freed by `gc.collect()`. `%devwidget memory` prints it, with what was freed since the last time.

    Returns:
        A frozen record to print, with the holders of each device, in bytes. Each storage counts for one holder.
    """
    return find_memory_holders(read_memory(virtual_gpus()), frame=sys._getframe(1))


def is_about_placement(error: BaseException) -> bool:
    """Return whether `explain` has more to say of an exception than its line and its tensors."""
    from devwidget import post_mortem

    return post_mortem.is_about_placement(error)


def answer_error(error: BaseException, cell: str = "") -> None:
    """Show the answer below the exception of a cell, if it is about devices, dtypes or memory and there is one.

    `cell` is its id in the notebook.
    """
    from devwidget import post_mortem

    if not is_about_placement(error):
        return
    explanation = explain(error)
    if post_mortem.is_answered(explanation):
        post_mortem.show_answer(explanation, cell, _prepare_fix)


def _prepare_fix(fix: Fix) -> Any:
    from devwidget.apply_fix import Application

    return Application(fix)


def apply_in_page(edits: Sequence[Edit]) -> bool:
    """Let the page write edits into the cells of the notebook; False where no page can."""
    from devwidget.apply_fix import apply_in_page

    return apply_in_page(edits)


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
    """Open the panel of a live model. The panel keeps only a weak reference: `del model` frees the model.

    Args:
        model: A module, or a record that an extra has a panel for: the ranks of a job, or a watched run, live or read by
            `devwidget.open`. Records take no other argument.
        batch: As for `trace`; you can also choose it in the panel.
        loss_fn: As for `trace`.
        target: As for `trace`.
        optimizer: As for `trace`.
        batch_expression: The batch as an expression of the notebook, evaluated at each trace.

    Returns:
        The panel, a widget that the notebook displays.

    Raises:
        DevwidgetError: If `model` is not a module.
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
    """Return the notebook variable that trains a model, if there is exactly one."""
    from devwidget import live_model

    refuse_model(model)
    return live_model.find_optimizer(model)


def model_names() -> list[str]:
    """Return the notebook variables that refer to a model, newest last."""
    from devwidget import live_model

    return live_model.model_names()
