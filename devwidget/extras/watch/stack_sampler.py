"""Where a thread stands while its steps are looked into: its lines, seen from another thread, and the part of the step."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import class_name, field_of, find_class_attribute, is_a, module_name
from devwidget.capture.source_code.call_sites import RawSite, locals_of, to_site
from devwidget.capture.source_code.stack import Owner, is_users_code, stack
from devwidget.extras.watch.records.run import LineTime
from devwidget.records.errors import error_text
from devwidget.records.site import Site

SECONDS_APART = 0.005
"""Between two looks: one takes some 50 microseconds, in which the thread that is looked at may wait for Python's lock."""
ENOUGH = 64
"""Looks at a part, after which its lines are known."""
FEWEST_STEPS, MOST_STEPS = 16, 256
LEAST_LOOKS = 5
"""At a line, below which nothing is said of it."""
MOST_OF_IT = 0.5
"""Share of the time of a part, from which on what was seen is what it is spent on."""
_MOST_LINES = 8
"""Kept of a part."""
_OF_TORCH_DATA = "torch.utils.data."


class LoaderWorkers(NamedTuple):
    """The processes for which a loader waits: how many, and the functions that run there, each with its line."""

    processes: int
    functions: tuple[tuple[str, Site], ...]


class _Standpoint(NamedTuple):
    """Where the thread stood: its line, whether a virtual GPU computed, and whether a loader waited for its workers."""

    site: RawSite
    computes: bool
    waits: bool


class _Tally:
    """How long, and how often, the thread was seen at one place."""

    def __init__(self) -> None:
        self.seconds, self.looks = 0.0, 0

    def add_look(self, seconds: float) -> None:
        self.seconds, self.looks = self.seconds + seconds, self.looks + 1


class SampledPart(NamedTuple):
    """One part of the steps that were looked into.

    Attributes:
        lines: each with its share of the time of the part, and how often it was seen; most first.
        waiting: share of the time in which a loader waited for its workers.
        computing: share in which virtual GPUs computed.
    """

    lines: tuple[tuple[Site, float, int], ...] = ()
    waiting: float = 0.0
    computing: float = 0.0


class StackSampler:
    """Looks at one thread some 200 times a second: `begin`, then what hooks tell, then `end`.

    A look weighs as much as has passed since the one before: while Python runs, its lock comes late.

    Args:
        thread: its identifier.
        part: that which is of interest; "" for all.

    Attributes:
        steps: numbers of the first and the last step that were looked into.
        workers: those of a loader that was seen to wait for them.
        trouble: why our own code has ended the looks; "" if it has not.
    """

    def __init__(self, thread: int, part: str = "") -> None:
        self.part = part
        self.steps: tuple[int, int] | None = None
        self.workers: LoaderWorkers | None = None
        self.trouble = ""
        self._count, self._looks = 0, 0
        self._thread = thread
        self._looker: threading.Thread | None = None
        self._ended = threading.Event()
        self._known: dict[tuple[object, ...], _Standpoint] = {}
        self._pending: list[tuple[_Standpoint, float]] = []
        self._of_step: list[tuple[str, _Standpoint, float]] = []
        self._parts = defaultdict[str, defaultdict[_Standpoint, _Tally]](lambda: defaultdict(_Tally))
        self._microseconds = Counter[str]()

    # -- the thread that looks

    def begin(self) -> None:
        """Look from now on; does nothing while that goes on."""
        if self._looker is None:
            self._ended.clear()
            _running.add(self)
            self._looker = threading.Thread(target=self._look_again_and_again, name="devwidget-lines", daemon=True)
            self._looker.start()

    def end(self) -> None:
        """Look no more."""
        looker, self._looker = self._looker, None
        if looker is not None:
            self._ended.set()
            looker.join()

    def _look_again_and_again(self) -> None:
        last = time.perf_counter()
        while not self._ended.wait(SECONDS_APART):
            try:
                stands = self._look()
            except Exception as trouble:  # ours, which must not become the program's
                self.trouble = error_text(trouble)
                return
            now = time.perf_counter()
            if stands is not None:
                self._pending.append((stands, now - last))
            last = now

    def _look(self) -> _Standpoint | None:
        # No frame is held when this returns: what its variables refer to would live on.
        user, library, computes, waits = None, None, False, False
        for owner, frame in stack(sys._current_frames().get(self._thread)):
            if owner is Owner.USER:
                user = frame
                break
            library = frame if owner is Owner.LIBRARY and library is None else library
            computes = computes or owner is Owner.OURS or owner is Owner.STEP
            waits = waits or (frame.f_code.co_filename == _LOADER_FILE and self._meet_loader(frame))
        if user is not None or library is not None:
            return self._stand(user, library, computes, waits)
        return None

    def _stand(self, frame: FrameType | None, library: FrameType | None, computes: bool, waits: bool) -> _Standpoint:
        # Ids: what is known holds the code objects, and the hash of one is computed of all that is in it.
        ends = [(id(each.f_code), each.f_lasti) if each is not None else None for each in (frame, library)]
        key = (*ends, computes, waits)
        known = self._known.get(key)
        if known is None:
            if library is not None:
                called = RawSite(library.f_code, library.f_lasti)
            else:
                called = None
            site = RawSite(frame.f_code, frame.f_lasti, called) if frame is not None else called
            assert site is not None
            known = self._known[key] = _Standpoint(site, computes, waits)
        return known

    def _meet_loader(self, frame: FrameType) -> bool:
        """Whether it is a loader's iterator that has its batches from other processes."""
        batches = locals_of(frame).get("self")
        if not is_a(batches, torch_internals.BatchIterator) or not (count := field_of(batches, "_num_workers")):
            return False
        if self.workers is None:
            self.workers = LoaderWorkers(count, tuple(_list_work(batches)))
        return True

    # -- what hooks tell

    def take_part(self, part: str) -> None:
        """What was seen since the last call belongs to this part of the step; to none if that is ""."""
        pending, self._pending = self._pending, []
        if part:
            self._of_step += [(part, *each) for each in pending]

    def take_step(self, number: int, times: Mapping[str, int], *, counts: bool) -> None:
        """A step has ended.

        Args:
            number: of the step.
            times: microseconds of each part.
            counts: what was seen of it; False for one that was recorded, as that takes its time.
        """
        of_step, self._of_step = self._of_step, []
        if counts:
            self.steps = (self.steps[0] if self.steps is not None else number), number
            self._count += 1
            self._microseconds.update(times)
            for part, stands, seconds in of_step:
                self._parts[part][stands].add_look(seconds)
                self._looks += self.part in ("", part)
        if self._looker is None:  # a process was forked
            self.begin()

    @property
    def has_enough(self) -> bool:
        """Whether more would tell no more."""
        return self._count >= MOST_STEPS or (self._count >= FEWEST_STEPS and self._looks >= ENOUGH)

    # -- what was seen

    def sum_part(self, part: str) -> SampledPart:
        """What is known of one part."""
        found = dict(self._parts.get(part, {}))
        whole = sum(tally.seconds for tally in found.values())
        sites, lines = dict[object, Site](), defaultdict[object, _Tally](_Tally)
        for stands, tally in found.items():
            site = to_site(stands.site)
            if site is not None:  # one line has several instructions
                sites.setdefault(site.place, site)
                lines[site.place].seconds += tally.seconds
                lines[site.place].looks += tally.looks
        most = sorted(lines, key=lambda place: -lines[place].seconds)[:_MOST_LINES]
        waiting = sum(tally.seconds for stands, tally in found.items() if stands.waits)
        computing = sum(tally.seconds for stands, tally in found.items() if stands.computes)
        told = tuple((sites[place], lines[place].seconds / whole, lines[place].looks) for place in most)
        if whole:
            return SampledPart(told, waiting / whole, computing / whole)
        return SampledPart()

    def list_lines(self) -> Iterator[LineTime]:
        """The lines that were seen often enough, with what a step spends there."""
        for part in self._parts:
            mean = self._microseconds[part] / 1e6 / max(1, self._count)
            for site, share, seen in self.sum_part(part).lines:
                if seen >= LEAST_LOOKS:
                    yield LineTime(part, site, share * mean)


def _list_work(batches: Any) -> Iterator[tuple[str, Site]]:
    """What the workers of a loader run: the data set's way to an item, or to several, and how a batch is made of them."""
    dataset = field_of(batches, "_dataset")
    while module_name(type(dataset)).startswith(_OF_TORCH_DATA) and (inner := field_of(dataset, "dataset")) is not None:
        dataset = inner  # that of a `Subset`, for one
    for name in ("__getitems__", "__getitem__", "__iter__"):
        code = _find_code(find_class_attribute(type(dataset), name))
        if code is not None:
            yield f"{class_name(type(dataset))}.{name}", _to_first_line(code)
            break
    collate = _find_code(field_of(batches, "_collate_fn"))
    if collate is not None and is_users_code(collate):
        yield collate.co_name, _to_first_line(collate)


def _find_code(function: object) -> CodeType | None:
    if type(function) in (FunctionType, MethodType):
        code = getattr(function, "__code__", None)
    else:
        code = None
    if isinstance(code, CodeType):
        return code
    return None


def _to_first_line(code: CodeType) -> Site:
    return Site(code.co_filename, code.co_firstlineno, "", code.co_name)


_LOADER_FILE = getattr(sys.modules.get(getattr(torch_internals.BatchIterator, "__module__", "")), "__file__", "")
_running: weakref.WeakSet[StackSampler] = weakref.WeakSet()


def _rest_before_fork() -> None:
    """A process is to be forked, by a loader for one, in which the thread that looks would be missing."""
    for each in list(_running):
        each.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_rest_before_fork)
