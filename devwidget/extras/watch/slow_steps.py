"""Steps that have become slow, and the lines where they spend their time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

from devwidget.capture.interrupts import uninterrupted
from devwidget.capture.stack_sampler import MOST_OF_IT, StackSampler
from devwidget.capture.undo import Undo
from devwidget.extras.watch import findings
from devwidget.extras.watch.changes import RunChanges
from devwidget.extras.watch.judgements import ELEMENTS, SEGMENT, WAITED, PaceJudge, Slowdown, Window
from devwidget.extras.watch.records.run import FIRST
from devwidget.extras.watch.run_log import RunLog
from devwidget.extras.watch.step_hooks import StepHooks
from devwidget.recording import virtual_gpus
from devwidget.records.schema.message import Message

_HOSTS = "data"
"""The part of a step that only the host runs, and that takes as long with virtual GPUs."""
_OF_A_SWITCH = 2000
"""Minimum microseconds for which another program has the processor after a switch, if the system does not say."""


class SlowSteps:
    """Judge the pace of a run, and sample some of its steps when they are slow.

    Attributes:
        is_of_host: Whether the code between the steps has become slow.
    """

    def __init__(self, hooks: StepHooks, log: RunLog, changes: RunChanges, ask_for: Callable[[Message], None]) -> None:
        self._hooks, self._log, self._changes, self._ask_for = hooks, log, changes, ask_for
        self._window, self._pace, self._clock = Window(), PaceJudge(), WaitingClock()
        self._is_over = self.is_of_host = False
        self._slow: Slowdown | None = None

    def begin(self, undo: Undo) -> None:
        """Start in this thread, until the returned context ends."""
        undo.add_step(self._stop_sampler)
        undo.enter_context(self._clock.run())

    def begin_again(self) -> None:
        """Compare no step with earlier ones."""
        self._window, self._pace = Window(), PaceJudge()

    def judge_step(self, number: int, times: dict[str, int], *, is_recorded: bool) -> None:
        """Judge the step that has ended."""
        waited = self._clock.take_microseconds()
        sampler = self._hooks.sampler
        if sampler is not None:
            sampler.take_step(number, counts=not is_recorded)
            if sampler.has_enough:
                self.tell_lines()
        if not is_recorded and not self._is_over:
            self._judge_pace(number, times, waited)

    def _judge_pace(self, number: int, times: dict[str, int], waited: int) -> None:
        row, slow = {FIRST: number, WAITED: waited, ELEMENTS: self._changes.elements, **times}, None
        if self._window.add_row(row):
            slow = self._pace.look(self._window)
        # What virtual GPUs compute takes says nothing of a GPU.
        if slow is not None and (slow.part == _HOSTS or not virtual_gpus()):
            self._is_over, self._slow, self.is_of_host = True, slow, slow.part == _HOSTS
            self._ask_for(Message("steps have become slow"))
            if slow.part:
                self._begin_sampler(slow.part)
            else:
                self.tell_lines()

    def _begin_sampler(self, part: str) -> None:
        with uninterrupted():
            self._stop_sampler()
            self._hooks.sampler = StackSampler(threading.get_ident(), part)
            self._hooks.sampler.begin()

    def _stop_sampler(self) -> None:
        with uninterrupted():
            sampler, self._hooks.sampler = self._hooks.sampler, None
            if sampler is not None:
                sampler.end()

    def tell_lines(self) -> None:
        """Report where the time goes, once there are enough samples or the run has ended."""
        sampler, slow = self._hooks.sampler, self._slow
        self._stop_sampler()
        self._slow = None
        if sampler is not None and sampler.trouble:
            self._log.add_note(Message("{kind}: {reason}", kind=Message("watch"), reason=sampler.trouble))
        if slow is not None and (sampler is None or not (virtual_gpus() and _is_computed(sampler))):
            changes = self._changes.list_between(slow.since - SEGMENT, slow.since + SEGMENT)
            self._log.add_findings(slow.since, [findings.tell_slowdown(slow, changes, sampler)])


def _is_computed(sampler: StackSampler) -> bool:
    """Return whether a part is slow because virtual GPUs compute."""
    seen = sampler.sum_up()
    return not seen.lines or seen.computing >= MOST_OF_IT


class WaitingClock:
    """Measures how long a thread was ready to run while other programs had the processor."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._last = 0

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Measure the thread that enters."""
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, AttributeError):  # another system than Linux, or one without these figures
            self._file = None
        self._last = self._read()
        try:
            yield
        finally:
            file, self._file = self._file, None
            if file is not None:
                os.close(file)

    def take_microseconds(self) -> int:
        """Return the microseconds since the last call."""
        before, self._last = self._last, self._read()
        return self._last - before

    def _read(self) -> int:
        if self._file is not None:
            return int(os.pread(self._file, 64, 0).split()[1]) // 1000
        return _count_switches() * _OF_A_SWITCH


def _count_switches() -> int:
    """Return how often this thread lost the processor to others; 0 if the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    if hasattr(resource, "RUSAGE_THREAD"):
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    return 0
