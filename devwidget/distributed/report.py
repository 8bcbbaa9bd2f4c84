"""Reports what this process holds and does, read without touching the job; and writes that to the folder of the job."""

from __future__ import annotations

import itertools
import linecache
import math
import os
import pathlib
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture.modules import all_tensors, is_module, walk_modules
from devwidget.capture.object_fields import copy_items, dict_of, is_scalar, module_name, mro_of, parts_of
from devwidget.capture.snapshot.optimizer_state import optimizer_tensors
from devwidget.capture.source_code.call_sites import is_library, is_own, locals_of
from devwidget.capture.tensors import read_attribute, shape_of
from devwidget.capture.undo import paused_gc
from devwidget.distributed.collectives import Progress, ProgressReader
from devwidget.distributed.job import Identity, file_of, find_identity, job_name, make_private, trace_of, write_whole
from devwidget.distributed.rank_tensors import compute_checksums, local_part, read_holdings
from devwidget.records.device import CPU
from devwidget.records.memory import DeviceMemory
from devwidget.records.ranks.rank import RankMemory, RankReport
from devwidget.records.ranks.traced_steps import TracedStep, extract_step
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import dumps
from devwidget.records.site import Site
from devwidget.records.trace import Trace

_MOST_VALUES = 5000
_PIPELINES = "torch.distributed.pipelining"
_FOREIGN = sys.stdlib_module_names | {"builtins", "torch", "numpy", "pandas"}


def find_model(frames: Iterable[FrameType]) -> nn.Module | None:
    """Find the outermost module of the largest tree; None where no variable holds one."""
    found = {id(module): module for module in _find_modules(frames)}
    if len(found) < 2:  # the usual case: nothing to measure
        return next(iter(found.values()), None)
    inner = {id(child) for module in found.values() for path, child in walk_modules(module) if path}
    roots = [module for key, module in found.items() if key not in inner]
    return max(roots, key=lambda root: sum(math.prod(shape_of(tensor)) for tensor in all_tensors(root)), default=None)


def _find_modules(frames: Iterable[FrameType]) -> Iterator[nn.Module]:
    """Yield modules in variables, and in the fields of objects in variables, such as those of a trainer."""
    for value in itertools.islice(_iterate_variables(frames), _MOST_VALUES):
        if is_module(value):
            yield value
        elif not is_scalar(value) and module_name(type(value)).partition(".")[0] not in _FOREIGN:
            yield from filter(is_module, _stored_fields(value))


def _iterate_variables(frames: Iterable[FrameType]) -> Iterator[Any]:
    for frame in frames:
        if not is_own(frame.f_code.co_filename):
            yield from locals_of(frame).values()
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    namespaces = [vars(sys.modules["__main__"])] + ([shell.user_ns] if shell is not None else [])
    yield from (value for namespace in namespaces for _, value in copy_items(namespace))


def find_stages(frames: Iterable[FrameType]) -> tuple[int, ...]:
    """Find the numbers of pipeline stages; () where torch's pipelines are not in use, or no variable holds one."""
    if _PIPELINES not in sys.modules:
        return ()
    found: set[int] = set()
    for value in itertools.islice(_iterate_variables(frames), _MOST_VALUES):
        found.update(
            int(dict_of(stage)["stage_index"])
            for each in (value, *_stored_fields(value))
            for stage in (each, *(parts_of(each) if type(each) in (list, tuple) else ()))
            if _is_stage(stage)
        )
    return tuple(sorted(found))


def _is_stage(value: object) -> bool:
    of_library = any(module_name(kind).startswith(_PIPELINES) for kind in mro_of(type(value)))
    return of_library and type(dict_of(value).get("stage_index")) is int


def _stored_fields(value: object) -> Iterator[Any]:
    """Yield the fields of a schedule, which has its stages, or of an object of the user's, such as a trainer."""
    fields = None if is_scalar(value) else dict_of(value)
    yield from (field for _, field in (copy_items(fields) if type(fields) is dict else ()))


_MOST = 24


def main_frames() -> list[FrameType]:
    """Return the frames of the main thread, the innermost first."""
    # The main thread runs on meanwhile: some may have returned when they are read, but a frame that is held stays whole.
    frames, frame = list[FrameType](), sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def stack_of(frames: list[FrameType]) -> tuple[Site, ...]:
    """Return the user's lines, and the innermost of all: that of a library says what it waits for."""
    kept = [
        frame
        for at, frame in enumerate(frames)
        if not is_own(frame.f_code.co_filename) and (at == 0 or not is_library(frame.f_code.co_filename))
    ]
    return tuple(map(_frame_site, reversed(kept[:_MOST])))


def _frame_site(frame: FrameType) -> Site:
    code, line = frame.f_code, frame.f_lineno or frame.f_code.co_firstlineno
    return Site(code.co_filename, line, linecache.getline(code.co_filename, line).strip(), code.co_name)


def is_in_step(frames: list[FrameType]) -> bool:
    """Whether a module is called or backward runs: while they do, FSDP gathers what it needs."""
    return any(frame.f_code.co_name in _STEPS and is_library(frame.f_code.co_filename) for frame in frames)


# Functions of torch below which forward and backward run.
_STEPS = frozenset({"_call_impl", "_engine_run_backward", "run_backward"})


_TRIES = 5
_recorded: list[TracedStep] = []
ReadMemory = Callable[[], Iterable[DeviceMemory]]


def remember_step(step: TracedStep) -> None:
    """Have this process tell from now on of the step that it has recorded last."""
    _recorded[:] = [step]


class Reporter:
    """Tells what one process holds and does.

    Args:
        model: the root, kept weakly; None to look for it in the variables of the main thread each time.
        memory: how full each device is.
        counts: `count_step` is called after each step.
    """

    def __init__(self, model: nn.Module | None, memory: ReadMemory, *, counts: bool = True) -> None:
        # Weak: an agent answers as long as its process lives, and the model and its optimizers need not live so long.
        self._model = weakref.ref(model) if model is not None else None
        self._memory, self._counts, self._job = memory, counts, job_name()
        self._progress = ProgressReader()
        self._steps: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()

    def count_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Count one more step of an optimizer; it is called by a hook after each."""
        self._steps[optimizer] = self._steps.get(optimizer, 0) + 1

    def announce_rank(self, who: Identity) -> RankReport:
        """Report that there is such a rank, and nothing else."""
        return RankReport(*who, time.time(), job=self._job, announced=True)

    # What a collection finds would be finalised in this thread, which the user's code does not know.
    @paused_gc()
    def make_report(self, who: Identity, *, checksums: bool = False) -> RankReport:
        """Report all that this process holds and does at this moment."""
        frames = main_frames()
        model = self._model() if self._model is not None else find_model(frames)
        held = read_holdings(model) if is_module(model) else None
        step, (collective, groups) = self._read_steady_progress()
        # A list at once: the thread that trains may step with one more optimizer meanwhile.
        optimizers = list(self._steps)
        states = (tensor for optimizer in optimizers for _, tensor, _ in optimizer_tensors(optimizer, {}))
        # It may have begun since.
        runs = is_in_step(frames) or is_in_step(main_frames())
        return RankReport(
            *who,
            time.time(),
            held.axes if held else (),
            held.coordinates if held else (),
            held.device if held else None,
            held.model if held else None,
            tuple(_list_memory(self._memory())),
            step,
            collective,
            groups,
            stack_of(frames),
            held.unsharded if held and not runs else (),
            compute_checksums(model) if checksums and is_module(model) else (),
            sum(int(read_attribute(local_part(tensor), "nbytes")) for tensor in states),
            held.note if held else Message("no variable of its main thread holds a model"),
            _recorded[0] if _recorded else None,
            find_stages(frames),
            self._job,
        )

    def _read_steady_progress(self) -> tuple[int, Progress]:
        """Count steps, and read the collectives at that step; without them if it goes on too fast."""
        for _ in range(_TRIES):
            step, progress = self._count_steps(), self._progress.read_progress()
            if self._count_steps() == step:
                return step, progress
        return self._count_steps(), (None, ())

    def _count_steps(self) -> int:
        return max(dict(self._steps).values(), default=0) if self._counts else -1


def _list_memory(devices: Iterable[DeviceMemory]) -> Iterable[RankMemory]:
    """Yield the accelerators that this process has used, and the memory of the process itself."""
    for each in devices:
        reserved = each.activations + each.cache
        if each.device.is_accelerator and (reserved or each.peak):
            card = each.uuid or ("" if each.card is None else str(each.card))
            yield RankMemory(each.device, each.activations, reserved, each.peak, each.total, card)
    resident = _resident_bytes()
    if resident:
        yield RankMemory(CPU, resident)


def _resident_bytes() -> int:
    """Return what Linux counts for this process; 0 where there is no such file."""
    counts = pathlib.Path("/proc/self/statm")
    return int(counts.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if counts.exists() else 0


class RankWriter:
    """The files of one rank; no rank waits for another, and whoever reads them puts them together.

    Args:
        path: the folder of the job, the same for all ranks.
        checksums: tell of each parameter that no axis cuts what is in it; that reads values, which waits for a GPU.
        memory: how full each device is.

    Raises:
        DevwidgetError: if this process is no rank, or other users may enter the folder.
    """

    def __init__(self, path: str | os.PathLike[str], checksums: bool, memory: ReadMemory) -> None:
        self._who = find_identity()
        self._folder = make_private(pathlib.Path(path), for_sockets=False)
        self._checksums, self._memory = checksums, memory

    def write_files(self, trace: Trace, model: nn.Module | None) -> None:
        """Write both files; without a model that of the largest that a variable of the main thread holds."""
        remember_step(extract_step(trace))
        report = Reporter(model, self._memory, counts=False).make_report(self._who, checksums=self._checksums)
        write_whole(trace_of(self._folder, self._who.rank), dumps(trace))
        write_whole(file_of(self._folder, self._who.rank), dumps(report))
