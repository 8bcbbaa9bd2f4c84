"""Time that a loop passes in `next(loader)`, and the lines that take it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from devwidget.capture.interrupts import Lock
from devwidget.capture.object_fields import field_of
from devwidget.capture.source_code.call_sites import RawSite, site_of, to_site
from devwidget.capture.source_code.stack import user_frame
from devwidget.capture.stack_sampler import ENOUGH, LEAST_LOOKS, StackSampler
from devwidget.capture.tensors import device_of, tensors_in
from devwidget.records.trace import LoaderTime

SLOW_SECONDS = 0.005
"""Seconds for a batch, below which a loader is not sampled: fewer than the seconds between two samples show nothing."""
_SWITCH_SECONDS = 0.0005
"""Seconds after which the sampled thread lets the sampling one look. With the 0.005 of Python, the sampling thread mostly looks
where torch releases the GIL, and not where the time is spent.
"""
_PART = "loader"


_intervals: list[float] = []
"""The interval of the program, once for each thread that samples: it is one for the process."""
_lock = Lock()


@_lock
def _switch_quickly() -> None:
    """Have threads take turns quickly until `_switch_slowly`."""
    _intervals.append(_intervals[0] if _intervals else sys.getswitchinterval())
    sys.setswitchinterval(_SWITCH_SECONDS)


@_lock
def _switch_slowly() -> None:
    interval = _intervals.pop()
    if not _intervals:
        sys.setswitchinterval(interval)


class _Loop:
    """One line that takes batches.

    Attributes:
        last: the iterator of the last batch, when that came, and whether its step counts; None at the start of a pass.
        taken: batches of this pass.
        first: when the only batch of a step was requested, and when it came; None if a loop takes batches.
    """

    def __init__(self, site: RawSite | None, loader: RawSite | None, workers: int) -> None:
        self.site, self.loader, self.workers = site, loader, workers
        self.last: tuple[int, float, bool] | None = None
        self.first: tuple[float, float] | None = None
        self.taken = self.batches = 0
        self.seconds = self.loop_seconds = self.longest = 0.0
        self.sampler = StackSampler(threading.get_ident(), _PART)
        self.is_slow = self.uses_gpu = False

    def note_batch(self, iterator: int, began: float, ended: float, overhead: float, *, counts: bool) -> None:
        """Add a batch. The first ones of a pass include the start of the loader and of its workers."""
        seconds = max(0.0, ended - began - overhead)
        self.is_slow = seconds >= SLOW_SECONDS
        last, self.last = self.last, (iterator, ended, counts)
        if last is None or last[0] != iterator:
            self.taken = 0
            return
        self.taken += 1
        if counts and last[2] and self.taken > self.workers:
            self.batches += 1
            self.seconds += seconds
            self.loop_seconds += ended - last[1]
            self.longest = max(self.longest, seconds)

    def make_record(self, *, computes: bool) -> LoaderTime:
        """Return the figures.

        Args:
            computes: whether the time in which virtual GPUs compute counts.
        """
        seen, workers = self.sampler.sum_up(), self.sampler.workers
        own: dict[str, Any] = {"uses_gpu": self.uses_gpu}
        if seen.lines and seen.lines[0][2] >= LEAST_LOOKS:
            own["line"], own["share"], _ = seen.lines[0]
        if workers is not None:
            own["work"] = tuple(replace(site, function=name) for name, site in workers.functions)
        part = 1.0 if computes and not self.uses_gpu else 1.0 - seen.computing
        if self.first is not None:
            began, ended = self.first
            return LoaderTime(None, None, 0, 1, ended - began, time.perf_counter() - began, **own)
        seconds, longest = self.seconds * part, self.longest * part
        sites = to_site(self.site), to_site(self.loader)
        return LoaderTime(*sites, self.workers, self.batches, seconds, self.loop_seconds, longest, **own)


class LoaderClock:
    """Measures `next(loader)` in one thread, and samples it from another while it is slow.

    Args:
        overhead: Seconds that devwidget has added so far.
        counts: Whether the current step counts.
    """

    def __init__(self, overhead: Callable[[], float] = float, counts: Callable[[], bool] = lambda: True) -> None:
        self._overhead, self._counts = overhead, counts
        self._loops: dict[tuple[int, int, int], _Loop] = {}

    def time_batch(self, original: Callable[..., Any], batches: Any, loader: RawSite | None = None) -> Any:
        """Return the next batch of an iterator."""
        loop = self._find_loop(batches, loader)
        is_sampled = loop.is_slow and loop.sampler.looks < ENOUGH
        overhead, counts = self._overhead(), self._counts()
        if is_sampled:
            loop.sampler.begin()
            _switch_quickly()
        began = time.perf_counter()
        try:
            batch = original(batches)
            ended = time.perf_counter()
            if not loop.batches:
                loop.uses_gpu = any(device_of(each).type not in ("cpu", "meta") for each in tensors_in(batch))
            loop.note_batch(id(batches), began, ended, self._overhead() - overhead, counts=counts)
        except BaseException:
            loop.last = None
            raise
        finally:
            if is_sampled:
                _switch_slowly()
                loop.sampler.take_part(_PART)
                loop.sampler.take_step(loop.batches, counts=counts)
                loop.sampler.end()
        return batch

    def time_first(self, original: Callable[..., Any], batches: Any) -> Any:
        """Return the only batch of a step. With workers it is not measured, because they are started for it."""
        loop = self._find_loop(batches, None)
        if loop.workers:
            return original(batches)
        loop.is_slow = True
        began = time.perf_counter()
        batch = self.time_batch(original, batches)
        loop.first = began, time.perf_counter()
        return batch

    def _find_loop(self, batches: Any, loader: RawSite | None) -> _Loop:
        frame = user_frame(sys._getframe(1))
        workers = field_of(batches, "_num_workers") or 0
        key = (id(frame.f_code), frame.f_lasti, workers) if frame is not None else (0, 0, workers)
        if key not in self._loops:  # each holds its code object, so that the id stays its own
            self._loops[key] = _Loop(site_of(frame) if frame is not None else None, loader, workers)
        return self._loops[key]

    def end(self) -> None:
        """Stop sampling, if an interrupt has left it running."""
        for loop in self._loops.values():
            loop.sampler.end()

    def list_times(self, *, computes: bool = True) -> tuple[LoaderTime, ...]:
        """Return the figures of each line that takes batches; see `_Loop.make_record`."""
        return tuple(loop.make_record(computes=computes) for loop in self._loops.values() if loop.batches or loop.first)
