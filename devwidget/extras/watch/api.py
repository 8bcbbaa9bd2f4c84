"""`devwidget.watch`, and the watch of a whole program."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING

import torch
from torch import nn

from devwidget.capture.process_rank import rank_of_environment, rank_of_torch
from devwidget.records.schema.public_calls import says_what_fits

if TYPE_CHECKING:
    from devwidget.extras.watch.program import ProgramWatch
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

    Hooks measure each step on the host clock, and allocators report the memory in use, without a sync. Results are unchanged.
    Now and then, and after a change, one step is recorded as by `record()`; a compiled model runs eagerly in it. Nothing is
    healed, restored or re-run.

    Args:
        model: The outermost module that the loop calls: the wrapper for `DataParallel`, the result for `torch.compile`.
        optimizer: A step ends after its step; without one after the forward pass.
        every: Number of steps between recorded ones; by default recording takes at most 2 % of the time.
        path: File that is written while the run continues, such as `watch.jsonl`; `devwidget.open` reads it, also from another
            process. In a job of several ranks each has its own, `watch.rank-3.jsonl`.

    Returns:
        A context manager and decorator with `steps`, `findings`, `recorded`, `to_frame()` and `save(path)`; it prints as a
            report, and its `result` is a record.

    Raises:
        DevwidgetError: If `model` is not a module, `optimizer` not an optimizer, `every` not a number of steps, or the file
            cannot be written.
    """
    from devwidget.extras.watch.watch import Watch  # what it judges by is loaded with the first run

    return Watch(model, optimizer, every=every, path=name_for_rank(path))


def name_for_rank(path: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """Return `watch.rank-3.jsonl` for `watch.jsonl` in a job of several ranks: one file each."""
    found = rank_of_torch() or rank_of_environment()
    if not isinstance(path, str | pathlib.PurePath) or found is None or found[1] < 2:
        return path
    file = pathlib.Path(path)
    return file.with_name(f"{file.name.removesuffix('.jsonl')}.rank-{found[0]}.jsonl")


def watch_program(path: str | os.PathLike[str] | None = None) -> ProgramWatch:
    """Return a watch of the model that a program trains."""
    from devwidget.extras.watch.program import ProgramWatch

    return ProgramWatch(name_for_rank(path))
