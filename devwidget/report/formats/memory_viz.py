"""A trace as a memory snapshot of torch, which https://docs.pytorch.org/memory_viz and `torch.cuda._memory_viz` open.

A trace keeps levels, not blocks: each rise of one part is written as a block of that size, each fall gives the latest back.

Source of the format: `torch/cuda/_memory_viz.py` and the docstring of `torch.cuda.memory._snapshot`.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from devwidget.records.memory import ROLES, MemoryCurve, MemoryPoint
from devwidget.records.trace import Trace
from devwidget.report.style.words import module_words, part_name
from devwidget.views.clock import Clock

Event = dict[str, Any]
_FIRST_ADDRESS = 1 << 40


def memory_viz(trace: Trace) -> bytes:
    """A pickle of plain values, one list of events for each GPU."""
    clock = Clock(trace)
    curves = {curve.device.index or 0: curve for curve in trace.memory if curve.device.is_accelerator}
    written = {index: _Blocks(curve, clock) for index, curve in curves.items()}
    events = [written[index].events if index in written else [] for index in range(max(written, default=-1) + 1)]
    segments = [segment for index, blocks in written.items() for segment in blocks.make_segments(index, curves[index])]
    return pickle.dumps({"segments": segments, "device_traces": events, "allocator_settings": {}}, protocol=4)


class _Blocks:
    """The parts of one curve as blocks, each with a place of its own in the address space."""

    def __init__(self, curve: MemoryCurve, clock: Clock) -> None:
        self.events: list[Event] = []
        self._living: dict[str, list[Event]] = defaultdict(list)
        self._next = _FIRST_ADDRESS
        before = dict.fromkeys(ROLES, 0)
        for point in curve.points:
            time = round(clock.at(point.number) * 1e6) if clock.runs else point.number
            for role in sorted(ROLES, key=lambda each: getattr(point, each) - before[each]):  # what goes, then what comes
                change, before[role] = getattr(point, role) - before[role], getattr(point, role)
                self._change_level(role, change, _frames_of_point(role, point), time)

    def _change_level(self, role: str, change: int, frames: list[Event], time: int) -> None:
        if change > 0:
            self._add_block(role, change, frames, time)
        while change < 0:
            block = self._living[role].pop()
            for action in ("free_requested", "free_completed"):
                self.events.append({**block, "action": action, "frames": frames, "time_us": time})
            change += block["size"]
            if change > 0:  # a part of it stays
                self._add_block(role, change, block["frames"], time)
                return

    def _add_block(self, role: str, size: int, frames: list[Event], time: int) -> None:
        block = {"action": "alloc", "addr": self._next, "size": size, "stream": 0, "frames": frames, "time_us": time}
        self._next += size
        self._living[role].append(block)
        self.events.append(block)

    def make_segments(self, index: int, curve: MemoryCurve) -> Iterator[Event]:
        """One that holds all blocks of the end."""
        living = sorted((block for blocks in self._living.values() for block in blocks), key=lambda block: block["addr"])
        allocated = sum(block["size"] for block in living)
        end = {"device": index, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False}
        sizes = {"total_size": self._next - _FIRST_ADDRESS, "allocated_size": allocated, "active_size": allocated}
        yield {"address": _FIRST_ADDRESS, **end, **sizes, "requested_size": allocated, "blocks": [*self._laid_out(living)]}

    def _laid_out(self, living: list[Event]) -> Iterator[Event]:
        """The blocks in use and what is free between them."""
        at = _FIRST_ADDRESS
        for block in [*living, {"addr": self._next, "size": 0, "frames": []}]:
            if block["addr"] > at:
                yield _block_event(at, block["addr"] - at, "inactive", [])
            if block["size"]:
                yield _block_event(block["addr"], block["size"], "active_allocated", block["frames"])
            at = block["addr"] + block["size"]


def _block_event(address: int, size: int, state: str, frames: list[Event]) -> Event:
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": frames}


def _frames_of_point(role: str, point: MemoryPoint) -> list[Event]:
    """The line, innermost; then the module, and what the bytes are for in which part of the step."""
    frames = [{"filename": point.site.file, "line": point.site.line, "name": point.site.function}] if point.site else []
    if point.module is not None:
        frames.append({"filename": "module", "line": 0, "name": module_words(point.module)})
    return [*frames, {"filename": point.phase, "line": 0, "name": part_name(role)}]
