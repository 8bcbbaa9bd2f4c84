"""`devwidget.try_edit`: run a step with a proposed edit, and say what the run shows."""

from __future__ import annotations

import ast
import contextlib
import linecache
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from devwidget.capture.object_fields import is_a
from devwidget.capture.restore.settings import global_states
from devwidget.capture.source_code.call_sites import forget_edited_files
from devwidget.capture.source_code.stack import is_users_function
from devwidget.capture.step.batch import make_arguments
from devwidget.capture.step.step import Step
from devwidget.capture.tensors import is_module
from devwidget.capture.validation import refuse_loss, refuse_model, refuse_optimizer, refuse_text
from devwidget.extras.agents.diffs import EXAMPLE, read_diff
from devwidget.extras.agents.records.evidence import Evidence
from devwidget.extras.agents.trial import Subject, Trial
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Edit, apply_edits
from devwidget.records.schema.message import Message
from devwidget.records.schema.public_calls import says_what_fits
from devwidget.records.site import file_label
from devwidget.trying.edited_code import locate_edit
from devwidget.trying.installed_edits import has_run
from devwidget.trying.trials import one_at_a_time

_EXAMPLE = 'def make_step(): return model, batch    # or {"model": model, "batch": batch, "loss_fn": loss_fn, ...}'


@says_what_fits
def try_edit(
    diff: str,
    model: Any,
    batch: Any = None,
    *,
    loss_fn: Callable[..., Any] | None = None,
    target: Any = None,
    optimizer: torch.optim.Optimizer | None = None,
    backward: bool | None = None,
) -> Evidence:
    """Run a step with an edit, and compare it with the step without it, repaired and on one device.

    The edit is tried in memory: the edited code replaces that of your functions while the step runs. Files and cells are not
    written, and everything that the step changes is restored.

    Args:
        diff: A unified diff of your files or cells. Line numbers and names may be missing.
        model: A module; or a function that builds the step, as `(model, batch)` or as a dict of arguments of `trace`. Pass such
            a function if the diff changes a constructor or the line that creates a tensor: it is called again with the edit.
        batch: As for `trace`.
        loss_fn: As for `trace`.
        target: As for `trace`.
        optimizer: As for `trace`.
        backward: As for `trace`.

    Returns:
        A frozen record to print: `verdict`, `reasons`, and the findings that are fixed, new or left.

    Raises:
        DevwidgetError: If the text is not a diff, its lines are in no loaded file, or the step does not fit.
    """
    refuse_text("diff", diff, EXAMPLE)
    options = {"batch": batch, "loss_fn": loss_fn, "target": target, "optimizer": optimizer, "backward": backward}
    forget_edited_files()
    if is_module(model):
        step = _make_step({"model": model, **options})
        return _try_on(Subject(lambda: step), diff)
    if not callable(model) or is_a(model, type):
        refuse_model(model)
    if any(value is not None for value in options.values()):
        raise DevwidgetError(
            Message("a function that builds the step returns the batch and the other arguments"), instead=_EXAMPLE
        )
    return _try_on(Subject(lambda: _build_step(model), model), diff)


def _build_step(function: Callable[[], Any]) -> Step:
    made = function()
    if is_a(made, tuple) and len(made) == 2:
        made = {"model": made[0], "batch": made[1]}
    if not is_a(made, Mapping) or "model" not in made or "batch" not in made:
        raise DevwidgetError(Message("the function did not return a model and a batch"), instead=_EXAMPLE)
    return _make_step(dict(made))


def _make_step(options: dict[str, Any]) -> Step:
    model, loss_fn = options.pop("model"), options.pop("loss_fn", None)
    refuse_model(model)
    refuse_loss(loss_fn)
    refuse_optimizer(options.get("optimizer"))
    inputs = make_arguments(model, options.pop("batch"), target=options.pop("target", None), loss_fn=loss_fn)
    return Step(model, inputs, loss_fn, options.get("optimizer"), options.get("backward"), options.get("allow", ()))


def _try_on(subject: Subject, diff: str) -> Evidence:
    with one_at_a_time, _random_state_kept() as rewind:
        try:
            before = subject.make()
        except DevwidgetError:
            raise
        except Exception:
            before = None  # the step cannot be built without the edit
        edits = read_diff(diff, _files_of(subject.list_roots(before)))
        why = _why_not_tried(edits, subject)
        if why:
            return Evidence("not run", (why,), edits)
        return Trial(subject, before, edits, rewind).run()


@contextlib.contextmanager
def _random_state_kept() -> Iterator[Callable[[], None]]:
    """Restore the random generators after the block, and at each call of the function that it gives."""
    states = list(global_states())

    def rewind() -> None:
        for each in states:
            each.put_back()

    try:
        yield rewind
    finally:
        rewind()


def _files_of(roots: Sequence[Any]) -> Iterator[str]:
    """Yield the files of functions and classes among some objects."""
    for root in roots:
        members = [root]
        if is_a(root, type):
            members = list(vars(root).values())
        for member in members:
            if is_users_function(member):
                yield member.__code__.co_filename


def _why_not_tried(edits: Sequence[Edit], subject: Subject) -> str:
    """Return why these edits cannot replace code that is loaded; "" if they can."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Message("the job has several processes")
    for file in dict.fromkeys(edit.file for edit in edits):
        mine = [edit for edit in edits if edit.file == file]
        rows = [row.rstrip("\n") for row in linecache.getlines(file)]
        try:
            tree, _ = ast.parse("\n".join(rows)), ast.parse("\n".join(apply_edits(rows, mine)))
        except SyntaxError as error:
            facts = {"file": file_label(file), "problem": error.msg, "line": error.lineno or 0}
            return Message("with the edit {file} is not valid Python: {problem}, line {line}", **facts)
        for edit in mine:
            place = locate_edit(tree, edit.first, max(edit.first, edit.last))
            if has_run(place, subject.function is not None):
                return _already_run_words(edit, is_inside=place.function is not None)
    return ""


def _already_run_words(edit: Edit, *, is_inside: bool) -> str:
    facts = {"line": edit.first, "file": file_label(edit.file)}
    if is_inside:
        return Message(
            "line {line} of {file} is in a constructor, which has run already: pass a function that builds the step",
            **facts,
        )
    return Message(
        "line {line} of {file} has run already: move it into a function that builds the step, and pass that", **facts
    )
