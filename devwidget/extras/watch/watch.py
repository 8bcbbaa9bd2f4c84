"""Watch a run: hooks produce rows, and rows decide which steps are recorded."""

from __future__ import annotations

import functools
import os
import pathlib
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from devwidget.capture import torch_internals
from devwidget.capture.devices import awake_module, kind_here, read_memory
from devwidget.capture.explain.traceback_frames import failure_of
from devwidget.capture.interrupts import all_or_nothing, is_from_handler, uninterrupted
from devwidget.capture.memory.held_memory import find_memory_holders
from devwidget.capture.object_fields import class_name
from devwidget.capture.patching.registry import listen
from devwidget.capture.recording.loader_clock import LoaderClock
from devwidget.capture.source_code.statements import is_limited
from devwidget.capture.tensors import is_module, walk_modules
from devwidget.capture.undo import Undo
from devwidget.capture.validation import refuse_model, refuse_optimizer
from devwidget.extras.watch import findings
from devwidget.extras.watch.changes import RunChanges
from devwidget.extras.watch.judgements import ELEMENTS, Growth, GrowthJudge, Window
from devwidget.extras.watch.recorded_steps import RecordingSchedule
from devwidget.extras.watch.records.run import FIRST, MEMORY, RecordedStep, StepRows, WatchedRun
from devwidget.extras.watch.run_log import RunLog
from devwidget.extras.watch.slow_steps import SlowSteps
from devwidget.extras.watch.step_hooks import StepHooks
from devwidget.recording import Recording, virtual_gpus
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError, error_text
from devwidget.records.finding import Finding
from devwidget.records.held_memory import MemoryHolder
from devwidget.records.memory import Holding
from devwidget.records.schema.message import Message
from devwidget.records.trace import Trace
from devwidget.rules.registry import all_rules, judge

if TYPE_CHECKING:
    import pandas as pd

_logs: MutableMapping[nn.Module, RunLog] = WeakIdKeyDictionary()
"""The last run of each model, for its panel."""
LATER = 32
"""Steps after a recorded one at which tensors still in use count as kept: most bounded histories are shorter."""
_LEAST_LATER = 4
"""The same if the run ends before."""
MOST_LEFT = 1_000_000
"""Steps until a device is full, beyond which growth is not reported."""
LONG = 512
"""Steps of unbroken growth that count if it is slight, such as a loss of 512 bytes in each."""
LOADED = 48
"""Steps after which loaders are judged for the first time."""
_SEEN = 0.01
"""Share of these steps over which growth must be seen: an epoch or a filling buffer ends before, and there is time left."""


class _RecordedNow(NamedTuple):
    recording: Recording
    reason: Message
    began: float


_Function = TypeVar("_Function", bound=Callable[..., Any])
_Holders = dict[tuple[str, str], MemoryHolder]
"""Holders of one device, by function and name."""


class Watch:
    """A watched training run: `with devwidget.watch(model, optimizer) as run: ...`, or `@devwidget.watch(model)`.

    You can enter it again to continue. After it has ended it keeps neither model nor optimizer alive.

    Args:
        model: The root.
        optimizer: Its optimizer.
        every: Number of steps between recorded ones.
        path: File that each row is also written to.
        first: Number of the first step, if the run is watched from a later step on.

    Attributes:
        listener: Receives each row.
        is_called: Whether the program calls the module itself; else it reports to `hooks` when a pass begins and ends.
    """

    inside = False
    is_called = True
    listener: Callable[[Mapping[str, int]], None] | None = None

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        every: int | None = None,
        path: str | os.PathLike[str] | None = None,
        first: int = 0,
    ) -> None:
        refuse_model(model)
        refuse_optimizer(optimizer)
        _refuse_every(every)
        self._model = weakref.ref(model)
        self._optimizer = weakref.ref(optimizer) if optimizer is not None else None
        self._kept_alive: tuple[object, ...] = (model, optimizer)  # until the run ends: the program may not keep them
        self.log = RunLog(class_name(type(model)), path)
        self.hooks = StepHooks(model, optimizer, self)
        self.hooks.may_infer = first == 0
        self._schedule = RecordingSchedule(every)
        self._undo = Undo()
        self._number = first
        self._began = 0.0
        self._recorded: _RecordedNow | None = None
        self._window = Window()
        self._growth: dict[str, GrowthJudge] = {}
        self._growing: tuple[str, Growth] | None = None
        self._living: tuple[int, Callable[[], list[Holding]] | None] | None = None
        self._held: _Holders = {}
        self._slight: dict[str, tuple[Growth, int, _Holders]] = {}
        self._creeping: set[str] = set()
        self._loader_clock = LoaderClock(counts=lambda: self._recorded is None)
        self._changes = RunChanges(model, self._schedule.ask_for)
        self._slow_steps = SlowSteps(self.hooks, self.log, self._changes, self._schedule.ask_for)

    @property
    def model(self) -> nn.Module | None:
        """The root; None if it no longer exists after the run."""
        return self._model()

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """Its optimizer; None without one, or if it no longer exists."""
        if self._optimizer is not None:
            return self._optimizer()
        return None

    def is_of(self, value: object) -> bool:
        """Return whether a value is the watched model or wraps it."""
        model = self.model
        return model is not None and is_module(value) and any(each is model for _, each in walk_modules(value))

    # -- results

    @property
    def result(self) -> WatchedRun:
        """The run so far, as a record."""
        return self.log.make_record()

    @property
    def steps(self) -> StepRows:
        """Times and memory of each step; in a long run a row has several steps."""
        return self.result.steps

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings so far, worst first."""
        return self.result.findings

    @property
    def recorded(self) -> dict[int, Trace]:
        """Traces of the recorded steps, by number."""
        return self.result.recorded

    def to_frame(self, part: str = "") -> pd.DataFrame:
        """Return the steps as a pandas data frame, or another `part` of the result."""
        return self.result.to_frame(part)

    def save(self, path: str | pathlib.Path) -> pathlib.Path:
        """Write the result as JSON; `devwidget.load` reads it."""
        return self.result.save(path)

    def __str__(self) -> str:
        return str(self.result)

    # -- the run

    def __call__(self, function: _Function) -> _Function:
        """Decorate a function: watch each call."""

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return watched  # type: ignore[return-value]

    def __enter__(self) -> Self:
        if self.inside:
            raise DevwidgetError(
                Message("this run is already being watched"), instead="with devwidget.watch(model) as run: ..."
            )
        self._begin()
        return self

    def begin_in_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Start during a call of the model with these arguments, when torch has already looked up its hooks."""
        self.__enter__()
        self.hooks.begin_pass(self._require_model(), args, kwargs)

    def _require_model(self) -> nn.Module:
        model = self.model
        if model is None:
            raise DevwidgetError(Message("the model of this run no longer exists"), instead="devwidget.watch(model)")
        return model

    @all_or_nothing
    def _begin(self) -> None:
        self._began = time.perf_counter() - self._schedule.passed
        self.inside = True
        model = self._require_model()
        self._kept_alive = (model, self.optimizer)
        _logs[model] = self.log
        self.hooks.put_in(self._undo, on_model=self.is_called)
        self._slow_steps.begin(self._undo)
        self._time_loaders()

    def _time_loaders(self) -> None:
        thread, batches = threading.get_ident(), torch_internals.BatchIterator
        if batches is not None:
            listen(lambda: threading.get_ident() == thread, batches, "__next__", self._loader_clock.time_batch, self._undo)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with uninterrupted(), Undo() as last:
            last.add_step(self._release_model)
            last.add_step(self._undo.run_steps)
            try:
                self._finish(error, trace)
            except Exception as trouble:  # ours, which must not become the program's
                if is_from_handler(trouble):
                    raise
                self.note_trouble(trouble)

    def _release_model(self) -> None:
        self.inside = False
        self._kept_alive = ()

    def _finish(self, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end_recorded(error, trace)
        if error is not None:
            self._note_end(error)
        self._tell_growth(self._number - 1)
        self._tell_slight_growth()
        self._judge_loaders()
        self._slow_steps.tell_lines()
        self.log.write_part(ends=True, error=self.log.error)

    def _note_end(self, error: BaseException) -> None:
        self.log.error = error_text(error)
        if isinstance(error, torch.cuda.OutOfMemoryError):
            site = failure_of(error, self.log.error, None).site
            told = findings.tell_out_of_memory(self._number, self.log.error, self.log.last_recorded, site)
            self.log.add_findings(self._number, [told])

    # -- what the hooks tell

    def note_trouble(self, trouble: Exception) -> None:
        """Note an error of devwidget in the record; the run continues."""
        self.log.add_note(Message("{kind}: {reason}", kind=Message("watch"), reason=error_text(trouble)))

    def begin_pass(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_evaluation: bool) -> None:
        """Note a call of the model: its inputs, and its device."""
        moved = self._changes.look_at_device(self._number, is_evaluation=is_evaluation)
        if moved is not None:
            self.log.add_findings(self._number, [moved])
        if not is_evaluation:
            self._changes.look_at_inputs(self._number, (args, kwargs))

    def begin_training(self) -> None:
        """Compare no step with the batches of inference before."""
        if self._number == 0:
            return
        self._window = Window()
        self._schedule.begin_again(self._number)
        self._slow_steps.begin_again()

    def end_step(self, times: dict[str, int]) -> None:
        """Note the end of a step."""
        figures, number, is_recorded = read_allocators(), self._number, self._recorded is not None
        self._schedule.passed = time.perf_counter() - self._began
        row = {FIRST: number, "count": 1, "recorded": is_recorded, **times, **figures}
        self.log.add_row(row)
        self._end_recorded()
        self._slow_steps.judge_step(number, times, is_recorded=is_recorded)
        self._follow_growth(number)
        if self._window.add_row(row | {ELEMENTS: self._changes.elements}):
            self._judge_growth(number, figures)
        if number == LOADED:
            self._judge_loaders()
        self._changes.expect_evaluation(number, times["evaluations"])
        self._number = number + 1
        if self.listener is not None:
            self.listener(row)
        self._begin_recorded()

    # -- recorded steps

    def _begin_recorded(self) -> None:
        reason = self._schedule.find_reason(self._number)
        if reason is None:
            return
        with uninterrupted():  # an interrupt here would leave the recording running
            began, recording = time.perf_counter(), Recording()
            recording.attach(self._require_model(), self.optimizer)
            recording.__enter__()
            self._recorded = _RecordedNow(recording, reason, began)

    def _end_recorded(self, error: BaseException | None = None, trace: TracebackType | None = None) -> None:
        now = self._recorded
        if now is None:
            return
        if self._growing is not None and self._living is None:
            self._living = self._number, now.recording.follow_living(DeviceId.parse(self._growing[0]).index or 0)
        with uninterrupted():
            now.recording.__exit__(type(error) if error is not None else None, error, trace)
            found, self._recorded = now.recording.trace, None
        self._schedule.spent += time.perf_counter() - now.began
        self.log.add_recorded(RecordedStep(self._number, now.reason, found))

    # -- judgements

    def _judge_loaders(self) -> None:
        """Report loaders that take most of each step. One that becomes slow is another finding."""
        times = self._loader_clock.list_times()
        if times and not self._slow_steps.is_of_host:
            rules = [each for each in all_rules() if each.kind == "slow-loader"]
            self.log.add_findings(0, judge(Trace(loaders=times, virtual_gpus=virtual_gpus()), rules).findings)

    def _judge_growth(self, number: int, figures: dict[str, int]) -> None:
        for name in figures:
            device, _, part = name.partition(" ")
            if part != MEMORY[0] or device in self._creeping:
                continue
            growth = self._growth.setdefault(name, GrowthJudge(name)).look(self._window)
            if growth is None:
                self._slight.pop(device, None)
            elif _matters(growth, number, device):
                if self._growing is None:
                    self._growing = device, growth
                    self._schedule.ask_for(Message("allocated memory of {device} grows", device=device), at_once=True)
            elif number - growth.since >= LONG and device not in self._slight:
                self._slight[device] = growth, number, _read_holders(device, sys._getframe(1))

    def _follow_growth(self, number: int) -> None:
        """Find who keeps memory soon after a recorded step, and who keeps more later."""
        if self._living is None or self._growing is None:
            return
        step, _ = self._living
        if number == step + _LEAST_LATER:
            self._held = _read_holders(self._growing[0], sys._getframe(1))
        if number >= step + LATER:
            self._tell_growth(number)

    def _tell_growth(self, ended: int) -> None:
        """Report steady growth, with the lines whose bytes are still allocated after another recorded step."""
        if self._growing is None:
            return
        (device, growth), self._growing = self._growing, None
        (step, list_living), self._living = self._living or (self._number, None), None
        self._creeping.add(device)
        later, kept, holder = ended - step, list[Holding](), None
        if list_living is not None and later >= _LEAST_LATER:
            kept = _join_lines(list_living())
            now = _read_holders(device, sys._getframe(1))
            holder = _find_grown(self._held, now, growth.bytes_per_step * max(1, later - _LEAST_LATER) / 2)
        if holder is None and GrowthJudge(ELEMENTS).look(self._window) is not None:
            return  # more is kept between steps because the inputs grow
        if holder is not None and _is_limited(holder):
            return
        told = findings.tell_growth(growth, DeviceId.parse(device), step, later, kept, holder, _find_free(device))
        self.log.add_findings(growth.since, [told])

    def _tell_slight_growth(self) -> None:
        """Report slight growth that lasts until the run ends, if tensors with their graphs are kept.

        Results without a graph are kept on purpose, and a cache that fills looks the same while it does.
        """
        for device, (growth, step, before) in self._slight.items():
            later = self._number - step
            if device in self._creeping or later < _LEAST_LATER:
                continue
            now = _read_holders(device, sys._getframe(1))
            holder = _find_grown(before, now, growth.bytes_per_step * later / 2)
            if holder is not None and holder.has_graph and not _is_limited(holder):
                told = findings.tell_growth(growth, DeviceId.parse(device), step, later, (), holder, 0)
                self.log.add_findings(growth.since, [replace(told, severity="info", fault=holder.site)])


def find_run(model: nn.Module) -> WatchedRun | None:
    """Return the last run of a model so far."""
    log = _logs.get(model)
    return log.make_record() if log is not None else None


def _refuse_every(every: object) -> None:
    if every is not None and (type(every) is not int or every < 1):
        raise DevwidgetError(Message("every={value} is not a number of steps", value=repr(every)), instead="every=100, or None")


def _join_lines(kept: list[Holding]) -> list[Holding]:
    lines: dict[object, Holding] = {}
    for each in kept:
        line = each.site.place if each.site is not None else None
        known = lines.get(line)
        total = each.bytes + (known.bytes if known is not None else 0)
        lines[line] = Holding(each.role, total, each.phase, each.module, each.site)
    return sorted(lines.values(), key=lambda each: -each.bytes)


def read_allocators() -> dict[str, int]:
    """Return the bytes of each device in use, from its allocator, without a sync or a new context."""
    module = awake_module()
    ask = getattr(module, "memory_stats_as_nested_dict", None)
    if ask is None:
        return {}
    kind = kind_here()
    return {name: size for index in range(module.device_count()) for name, size in _figures_of(f"{kind}:{index}", ask(index))}


def _figures_of(device: str, figures: dict[str, Any]) -> Iterator[tuple[str, int]]:
    if not figures or not figures["reserved_bytes"]["all"]["peak"]:
        return
    allocated, reserved = figures["allocated_bytes"]["all"], figures["reserved_bytes"]["all"]
    sizes = allocated["current"], reserved["current"], allocated["peak"]
    yield from ((f"{device} {part}", size) for part, size in zip(MEMORY, sizes, strict=True))


def _read_holders(device: str, frame: FrameType) -> _Holders:
    own = [each for each in read_memory(virtual_gpus()) if str(each.device) == device]
    held = find_memory_holders(own, frame=frame)
    return {(each.function, each.name): each for of_device in held.devices for each in of_device.holders}


def _find_grown(before: _Holders, now: _Holders, least: float) -> MemoryHolder | None:
    """Return the holder that keeps most more than before, if this is at least so many bytes."""
    most, found = least, None
    for key, holder in now.items():
        if key in before and holder.bytes - before[key].bytes >= most:
            most, found = holder.bytes - before[key].bytes, holder
    return found


def _is_limited(holder: MemoryHolder) -> bool:
    """Return whether a program limits the length of a container, which is then not full yet."""
    if holder.most_items:
        return holder.items < holder.most_items
    return holder.site is not None and is_limited(holder.site.file, holder.name, holder.items)


def _matters(growth: Growth, number: int, device: str) -> bool:
    """Return whether the device would be full within a run; a list of losses, 512 bytes per step, does not matter."""
    left = _find_free(device) / growth.bytes_per_step
    return left < MOST_LEFT and number - growth.since >= _SEEN * left


def _find_free(device: str) -> int:
    known = {str(each.device): each for each in read_memory(virtual_gpus())}
    if device in known:
        return known[device].free + known[device].cache
    return 0
