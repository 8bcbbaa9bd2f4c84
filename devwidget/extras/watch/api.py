"""`devwidget.watch`, and what watches a whole program."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import TYPE_CHECKING

import torch
from torch import nn

from devwidget.capture.process_rank import rank_of_environment, rank_of_torch
from devwidget.records.schema.public_calls import says_what_fits

if TYPE_CHECKING:
    from devwidget.extras.watch.program import ProgramWatch
    from devwidget.extras.watch.status_line import StatusLine
    from devwidget.extras.watch.watch import Watch


@says_what_fits
def watch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    every: int | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Watch:
    """Watch a whole training run: `with devwidget.watch(model, optimizer) as run: ...`, or `@devwidget.watch(model)`.

    Hooks tell what each step takes, on the clock of the host, and allocators what is in use; nothing is waited for, and no
    number changes. Now and then, and when something has changed, one step is recorded as by `record()`, in which a
    compiled model runs as its eager original. Nothing is healed, restored or run again.

    Args:
        model: the outermost module that the loop calls: with `DataParallel` the wrapper, with `torch.compile` what it gave.
        optimizer: a step ends when it has stepped; without one with the forward pass.
        every: how many steps lie between two that are recorded; by default as many as keep what that takes within
            2 % of the time.
        path: a file that grows with the run, such as `watch.jsonl`, which `devwidget.open` reads, in another process too. In
            a job of several ranks each has its own, `watch.rank-3.jsonl`; `devwidget.open` puts those in a folder together.

    Returns:
        A context manager and decorator with `steps`, `findings`, `recorded`, `to_frame()` and `save(path)`; it prints as a
            report, and its `result` is a record.

    Raises:
        DevwidgetError: if the model is no module, the optimizer none, `every` no number of steps, or the file cannot be
            written.
    """
    from devwidget.extras.watch.watch import Watch  # what it judges by is loaded with the first run

    return Watch(model, optimizer, every=every, path=name_for_rank(path))


def name_for_rank(path: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """`watch.rank-3.jsonl` for `watch.jsonl` in a job of several ranks: one file each."""
    found = rank_of_torch() or rank_of_environment()
    if not isinstance(path, str | pathlib.PurePath) or found is None or found[1] < 2:
        return path
    file = pathlib.Path(path)
    return file.with_name(f"{file.name.removesuffix('.jsonl')}.rank-{found[0]}.jsonl")


def watch_program(path: str | os.PathLike[str] | None = None) -> tuple[ProgramWatch, StatusLine]:
    """What watches the model that a program trains, and the line of the terminal that it is told on."""
    from devwidget.extras.watch.program import ProgramWatch

    line = make_status_line()
    return ProgramWatch(name_for_rank(path), line.show_step), line


def make_status_line() -> StatusLine:
    """A line on the error stream that says how a watched run goes, if that is a terminal."""
    from devwidget.extras.watch.status_line import StatusLine

    return StatusLine(sys.stderr)
