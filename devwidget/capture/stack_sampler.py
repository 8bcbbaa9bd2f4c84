"""Sample the lines of a thread from another thread, with the part of the step."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import class_name, field_of, find_class_attribute, is_a, module_name
from devwidget.capture.source_code.call_sites import RawSite, to_site
from devwidget.capture.source_code.stack import Owner, is_users_code, locals_of, stack
from devwidget.capture.source_code.statements import definition_site
from devwidget.records.errors import error_text
from devwidget.records.site import Site

SECONDS_APART = 0.005
"""Seconds between two samples: one takes about 50 microseconds, in which the sampled thread may wait for the GIL."""
ENOUGH = 64
"""Samples of a part after which its lines are known."""
FEWEST_STEPS, MOST_STEPS = 16, 256
LEAST_LOOKS = 5
"""Samples of a line below which it is not reported."""
MOST_OF_IT = 0.5
"""Share of the time of a part from which a line is said to take it."""
_MOST_LINES = 8
"""Lines kept of a part."""
_OF_TORCH_DATA = "torch.utils.data."


class LoaderWorkers(NamedTuple):
    """Processes that a loader waits for: how many, and the functions that run there with their lines."""

    processes: int
    functions: tuple[tuple[str, Site], ...]


class _Standpoint(NamedTuple):
    """A sample: line, whether a virtual GPU computed, and whether a loader waited for its workers."""

    site: RawSite
    computes: bool
    waits: bool


class SampledPart(NamedTuple):
    """The samples of one part of the step.

    Attributes:
        lines: Lines with their share of the time and number of samples; most first.
        waiting: Share of the time in which a loader waited for its workers.
        computing: Share in which virtual GPUs computed.
    """

    lines: tuple[tuple[Site, float, int], ...] = ()
    waiting: float = 0.0
    computing: float = 0.0


class StackSampler:
    """Sample one part of the steps of a thread about 200 times a second: `begin`, then reports of hooks, then `end`.

    A sample weighs as much as the time since the one before, because the GIL may delay it.

    Args:
        thread: Its identifier.
        part: The part of the step.

    Attributes:
        steps: Numbers of the first and the last sampled step.
        looks: Number of samples of the part.
        workers: Workers of a loader that waited for them.
        trouble: Error of devwidget that ended sampling; "" if none did.
    """

    def __init__(self, thread: int, part: str) -> None:
        self.part = part
        self.steps: tuple[int, int] | None = None
        self.workers: LoaderWorkers | None = None
        self.trouble = ""
        self.looks = self._count = 0
        self._thread = thread
        self._looker: threading.Thread | None = None
        self._ended = threading.Event()
        self._known: dict[tuple[object, ...], _Standpoint] = {}
        self._pending: list[tuple[_Standpoint, float]] = []
        self._of_step: list[tuple[_Standpoint, float]] = []
        self._seconds, self._looks_at = defaultdict[_Standpoint, float](float), Counter[_Standpoint]()

    # -- the thread that looks

    def begin(self) -> None:
        """Start sampling; no effect while it runs."""
        if self._looker is None:
            self._ended.clear()
            _running.add(self)
            self._looker = threading.Thread(target=self._look_again_and_again, name="devwidget-lines", daemon=True)
            self._looker.start()

    def end(self) -> None:
        """Stop sampling."""
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
        user, library, computes, waits, loads = None, None, False, False, False
        for owner, frame in stack(sys._current_frames().get(self._thread)):
            if owner is Owner.USER:
                user = frame
                break
            library = frame if owner is Owner.LIBRARY and library is None else library
            computes = computes or (not loads and (owner is Owner.OURS or owner is Owner.STEP))
            loads = loads or frame.f_code.co_filename == _LOADER_FILE  # what calls the loader does not compute
            waits = waits or (frame.f_code.co_filename == _LOADER_FILE and self._meet_loader(frame))
        called = RawSite(library.f_code, library.f_lasti) if library is not None else None
        site = RawSite(user.f_code, user.f_lasti, called) if user is not None else called
        if site is None:
            return None
        # Ids: what is known holds the code objects, and the hash of one is computed of all that is in it.
        ends = [(id(each.code), each.offset) for each in (site, called) if each is not None]
        return self._known.setdefault((*ends, computes, waits), _Standpoint(site, computes, waits))

    def _meet_loader(self, frame: FrameType) -> bool:
        """Return whether it is a loader's iterator with worker processes."""
        batches = locals_of(frame).get("self")
        if not is_a(batches, torch_internals.BatchIterator) or not (count := field_of(batches, "_num_workers")):
            return False
        if self.workers is None:
            self.workers = LoaderWorkers(count, tuple(_list_work(batches)))
        return True

    # -- what hooks tell

    def take_part(self, part: str) -> None:
        """Assign the samples since the last call to a part of the step."""
        pending, self._pending = self._pending, []
        if part == self.part:
            self._of_step += pending

    def take_step(self, number: int, *, counts: bool) -> None:
        """Note the end of a step; the samples of a recorded one, which takes longer, do not count."""
        of_step, self._of_step = self._of_step, []
        if counts:
            self.steps = (self.steps[0] if self.steps is not None else number), number
            self._count += 1
            self.looks += len(of_step)
            for stands, seconds in of_step:
                self._seconds[stands] += seconds
                self._looks_at[stands] += 1
        if self._looker is None:  # a process was forked
            self.begin()

    @property
    def has_enough(self) -> bool:
        """Return whether more samples would add nothing."""
        return self._count >= MOST_STEPS or (self._count >= FEWEST_STEPS and self.looks >= ENOUGH)

    # -- what was seen

    def sum_up(self) -> SampledPart:
        """Return the samples of the part."""
        whole = sum(self._seconds.values())
        if not whole:
            return SampledPart()
        sites, shares, looks = dict[object, Site](), defaultdict[object, float](float), Counter[object]()
        waiting = computing = 0.0
        for stands, taken in self._seconds.items():
            site, share = to_site(stands.site), taken / whole
            waiting += share * stands.waits
            computing += share * stands.computes
            if site is not None:  # one line has several instructions
                sites.setdefault(site.place, site)
                shares[site.place] += share
                looks[site.place] += self._looks_at[stands]
        most = sorted(shares, key=lambda place: -shares[place])[:_MOST_LINES]
        return SampledPart(tuple((sites[place], shares[place], looks[place]) for place in most), waiting, computing)


def _list_work(batches: Any) -> Iterator[tuple[str, Site]]:
    """Return what loader workers run: the data set's item functions, and how a batch is collated."""
    dataset = field_of(batches, "_dataset")
    while module_name(type(dataset)).startswith(_OF_TORCH_DATA) and (inner := field_of(dataset, "dataset")) is not None:
        dataset = inner  # that of a `Subset`, for one
    for name in ("__getitems__", "__getitem__", "__iter__"):
        code = _find_code(find_class_attribute(type(dataset), name))
        if code is not None:
            yield f"{class_name(type(dataset))}.{name}", definition_site(code)
            break
    collate = _find_code(field_of(batches, "_collate_fn"))
    if collate is not None and is_users_code(collate):
        yield collate.co_name, definition_site(collate)


def _find_code(function: object) -> CodeType | None:
    code = getattr(function, "__code__", None) if type(function) in (FunctionType, MethodType) else None
    if isinstance(code, CodeType):
        return code
    return None


_LOADER_FILE = getattr(sys.modules.get(getattr(torch_internals.BatchIterator, "__module__", "")), "__file__", "")
_running: weakref.WeakSet[StackSampler] = weakref.WeakSet()


def _rest_before_fork() -> None:
    """Stop sampling before a fork, such as of a loader, because the child lacks the sampling thread."""
    for each in list(_running):
        each.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_rest_before_fork)
