"""Report what this process holds and does, without affecting the job, and write reports to the folder of the job."""

from __future__ import annotations

import itertools
import math
import os
import pathlib
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

from torch import nn

from devwidget.capture.object_fields import copy_items, dict_of, is_scalar, module_name, mro_of, parts_of
from devwidget.capture.source_code.stack import is_own, locals_of
from devwidget.capture.tensors import all_tensors, is_module, shape_of, walk_modules
from devwidget.capture.undo import paused_gc
from devwidget.extras.ranks.collectives import LastReader, Progress, ProgressReader
from devwidget.extras.ranks.job import (
    Identity,
    agree_on_run,
    file_of,
    find_identity,
    find_machine,
    job_name,
    make_private,
    read_process,
    trace_of,
    write_whole,
)
from devwidget.extras.ranks.rank_tensors import compute_checksums, read_holdings
from devwidget.extras.ranks.records.rank import LastWord, RankMemory, RankReport
from devwidget.extras.ranks.records.traced_steps import TracedStep
from devwidget.extras.ranks.stacks import is_in_step, main_frames, stack_of
from devwidget.extras.ranks.step_history import StepHistory, Summed, list_fixed
from devwidget.records.device import CPU
from devwidget.records.memory import DeviceMemory
from devwidget.records.schema.message import Message, in_row
from devwidget.records.schema.record import dumps
from devwidget.records.site import find_shell
from devwidget.records.trace import Trace

_MOST_VALUES = 5000
_PIPELINES = "torch.distributed.pipelining"
_FOREIGN = sys.stdlib_module_names | {"builtins", "torch", "numpy", "pandas"}


def find_model(frames: Iterable[FrameType]) -> nn.Module | None:
    """Return the root of the largest module tree; None if no variable refers to a module."""
    found = {id(module): module for module in _find_modules(frames)}
    if len(found) < 2:  # the usual case: nothing to measure
        return next(iter(found.values()), None)
    inner = {id(child) for module in found.values() for path, child in walk_modules(module) if path}
    roots = [module for key, module in found.items() if key not in inner]
    return max(roots, key=lambda root: sum(map(math.prod, map(shape_of, all_tensors(root)))), default=None)


def _find_modules(frames: Iterable[FrameType]) -> Iterator[nn.Module]:
    """Yield modules in variables, and in the fields of objects in variables, such as a trainer."""
    for value in itertools.islice(_iterate_variables(frames), _MOST_VALUES):
        if is_module(value):
            yield value
        elif not is_scalar(value) and module_name(type(value)).partition(".")[0] not in _FOREIGN:
            yield from filter(is_module, _stored_fields(value))


def _iterate_variables(frames: Iterable[FrameType]) -> Iterator[Any]:
    for frame in frames:
        if not is_own(frame.f_code.co_filename):
            yield from locals_of(frame).values()
    namespaces = [vars(sys.modules["__main__"])]
    shell = find_shell()
    if shell is not None:
        namespaces.append(shell.user_ns)
    for namespace in namespaces:
        for _, value in copy_items(namespace):
            yield value


def find_stages(frames: Iterable[FrameType]) -> tuple[int, ...]:
    """Return the numbers of pipeline stages; () without torch's pipelines, or if no variable refers to one."""
    if _PIPELINES not in sys.modules:
        return ()
    found: set[int] = set()
    for value in itertools.islice(_iterate_variables(frames), _MOST_VALUES):
        for each in (value, *_stored_fields(value)):
            parts = [each]
            if type(each) in (list, tuple):
                parts += parts_of(each)
            for part in parts:
                if any(module_name(kind).startswith(_PIPELINES) for kind in mro_of(type(part))):
                    index = dict_of(part).get("stage_index")
                    if type(index) is int:
                        found.add(index)
    return tuple(sorted(found))


def _stored_fields(value: object) -> Iterator[Any]:
    """Yield the fields of a schedule, which has its stages, or of an object of the user, such as a trainer."""
    if is_scalar(value):
        return
    fields = dict_of(value)
    if type(fields) is dict:
        for _, field in copy_items(fields):
            yield field


_TRIES = 5
_recorded: list[TracedStep] = []
"""The step that this process has recorded last."""
ReadMemory = Callable[[], Iterable[DeviceMemory]]


class Reporter:
    """Report what one process holds and does.

    Args:
        model: The root, weakly referenced; None to look for it in the variables of the main thread each time.
        memory: Returns the memory of each device.
        counts: `history.note_step` is called after each step.
        checksums: After some steps, compute checksums of parameters that every rank has in full.
    """

    def __init__(self, model: nn.Module | None, memory: ReadMemory, *, counts: bool = True, checksums: bool = False) -> None:
        # Weak: an agent answers as long as its process lives, and the model and its optimizers need not live so long.
        self._model = weakref.ref(model) if model is not None else None
        self._memory, self._counts = memory, counts
        self._job: dict[str, Any] = {
            "job": job_name(),
            "run": agree_on_run(),
            "machine": find_machine(),
            "started": (read_process(os.getpid()) or ("", 0))[1],
        }
        self._progress, self._last = ProgressReader(), LastReader()
        self.history = StepHistory(self._find_model, checksums=checksums)

    def _find_model(self, frames: Sequence[FrameType] = ()) -> nn.Module | None:
        """Return the given model while it exists, or one that a variable refers to."""
        if self._model is not None:
            found = self._model()
        else:
            found = find_model(frames or main_frames())
        return found if is_module(found) else None

    def announce_rank(self, who: Identity) -> RankReport:
        """Report only that the rank exists."""
        return RankReport(*who, time.time(), announced=True, **self._job)

    def report_end(self, who: Identity, word: LastWord) -> RankReport:
        """Report that a rank ended normally, the number of its steps, and their settings."""
        steps, (_, groups) = self.history.list_settings(), self._progress.read_progress()
        return RankReport(*who, time.time(), step=self._count_steps(), groups=groups, last_word=word, steps=steps, **self._job)

    # What a collection finds would be finalised in this thread, which the user's code does not know.
    @paused_gc()
    def make_report(
        self,
        who: Identity,
        *,
        checksums: bool = False,
        word: LastWord | None = None,
        frames: Sequence[FrameType] = (),
    ) -> RankReport:
        """Report everything that this process holds and does now.

        Args:
            checksums: Compute checksums now, which reads values.
            word: Reason for a report without a query.
            frames: Frames of the exception that ends the process, innermost first; else of the main thread.
        """
        here = list(frames) or main_frames()
        model = self._find_model(here)
        held = self._read_model(model, here)
        step, (collective, groups) = self._read_steady_progress()
        summed = self.history.summed
        if checksums and model is not None:
            summed = Summed(step, compute_checksums(model))
        return replace(
            self.announce_rank(who),
            announced=False,
            memory=tuple(_list_memory(self._memory())),
            step=step,
            collective=collective,
            groups=groups,
            stack=word.stack if word is not None and word.stack else stack_of(here),
            checksums=summed.checksums,
            traced=_recorded[0] if _recorded else None,
            stages=find_stages(here),
            last_word=word,
            settings=tuple(list_fixed()),
            steps=self.history.list_settings(),
            ends=tuple(self.history.ends),
            checksums_step=summed.step,
            last=self._last.read_last(at_the_end=word is not None and word.how != "running"),
            **held,
        )

    def _read_model(self, model: nn.Module | None, frames: list[FrameType]) -> dict[str, Any]:
        notes, fault = [], self.history.fault
        if fault:
            notes.append(Message("optimizer settings are unknown after a step that could not be read: {error}", error=fault))
        if model is None:
            return {"note": in_row((Message("no variable of its main thread refers to a model"), *notes), "; ")}
        held = read_holdings(model)
        # While a step runs FSDP gathers what it needs; it may have begun since the frames were read.
        if is_in_step(frames) or is_in_step(main_frames()):
            held["unsharded"] = ()
        return held | {"note": in_row((held["note"], *notes), "; ")}

    def _read_steady_progress(self) -> tuple[int, Progress]:
        """Return the number of steps and the collectives at that step; without them if steps are too fast."""
        for _ in range(_TRIES):
            step, progress = self._count_steps(), self._progress.read_progress()
            if self._count_steps() == step:
                return step, progress
        return self._count_steps(), (None, ())

    def _count_steps(self) -> int:
        return self.history.count_steps() if self._counts else -1


def _list_memory(devices: Iterable[DeviceMemory]) -> Iterable[RankMemory]:
    for each in devices:
        reserved = each.activations + each.cache
        if each.device.is_accelerator and (reserved or each.peak):
            card = each.uuid
            if not card and each.card is not None:
                card = str(each.card)
            yield RankMemory(each.device, each.activations, reserved, each.peak, card)
    counts = pathlib.Path("/proc/self/statm")  # of Linux
    if counts.exists():
        yield RankMemory(CPU, int(counts.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))


class RankWriter:
    """Writes the files of one rank. No rank waits for another; the reader combines the files.

    Args:
        path: Folder of the job, the same for all ranks.
        checksums: Save a checksum of each unsharded parameter; that reads values, which syncs with the GPU.
        memory: Returns the memory of each device.

    Raises:
        DevwidgetError: If this process is not a rank, or other users have access to the folder.
    """

    def __init__(self, path: str | os.PathLike[str], checksums: bool, memory: ReadMemory) -> None:
        self._who = find_identity()
        self._folder = make_private(pathlib.Path(path), for_sockets=False)
        self._checksums, self._memory = checksums, memory

    def write_files(self, trace: Trace, model: nn.Module | None) -> None:
        """Write both files; by default of the largest model that a variable of the main thread refers to."""
        _recorded[:] = [TracedStep(trace.collectives, trace.groups)]
        report = Reporter(model, self._memory, counts=False).make_report(self._who, checksums=self._checksums)
        write_whole(trace_of(self._folder, self._who.rank), dumps(trace))
        write_whole(file_of(self._folder, self._who.rank), dumps(report))


join_recording = RankWriter
"""For `devwidget.record(path=...)`: takes the folder, whether to compute checksums, and how to read memory."""
