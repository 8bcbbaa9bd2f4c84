"""Time that a loop passes in `next(loader)`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from devwidget.capture.object_fields import field_of
from devwidget.capture.recording.event_log import make_record
from devwidget.capture.source_code.call_sites import RawSite, site_of
from devwidget.capture.source_code.stack import user_frame
from devwidget.capture.tensors import device_of, tensors_in
from devwidget.records.trace import LoaderTime


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
        self.uses_gpu = False

    def note_batch(self, iterator: int, began: float, ended: float, overhead: float, *, counts: bool) -> None:
        """Add a batch. The first ones of a pass include the start of the loader and of its workers."""
        seconds = max(0.0, ended - began - overhead)
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

    def make_record(self) -> LoaderTime:
        """Return the figures."""
        if self.first is not None:
            began, ended = self.first
            return LoaderTime(None, None, 0, 1, ended - began, time.perf_counter() - began, uses_gpu=self.uses_gpu)
        return make_record(LoaderTime, self)


class LoaderClock:
    """Measures `next(loader)` in one thread.

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
        overhead, counts = self._overhead(), self._counts()
        began = time.perf_counter()
        try:
            batch = original(batches)
        except BaseException:
            loop.last = None
            raise
        ended = time.perf_counter()
        if not loop.batches:
            loop.uses_gpu = any(device_of(each).type not in ("cpu", "meta") for each in tensors_in(batch))
        loop.note_batch(id(batches), began, ended, self._overhead() - overhead, counts=counts)
        return batch

    def time_first(self, original: Callable[..., Any], batches: Any) -> Any:
        """Return the only batch of a step. With workers it is not measured, because they are started for it."""
        loop = self._find_loop(batches, None)
        if loop.workers:
            return original(batches)
        began = time.perf_counter()
        batch = self.time_batch(original, batches)
        loop.first = began, time.perf_counter()
        return batch

    def _find_loop(self, batches: Any, loader: RawSite | None) -> _Loop:
        frame = user_frame(sys._getframe(1))
        workers = field_of(batches, "_num_workers") or 0
        if frame is None:
            return self._loops.setdefault((0, 0, workers), _Loop(None, loader, workers))
        key = id(frame.f_code), frame.f_lasti, workers
        if key not in self._loops:  # each holds its code object, so that the id stays its own
            self._loops[key] = _Loop(site_of(frame), loader, workers)
        return self._loops[key]

    def list_times(self) -> tuple[LoaderTime, ...]:
        """Return the figures of each line that takes batches."""
        records = []
        for loop in self._loops.values():
            if loop.batches or loop.first:
                records.append(loop.make_record())
        return tuple(records)
