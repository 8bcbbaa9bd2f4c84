"""The history of allocations that `torch.cuda.memory._record_memory_history` begins, as `_snapshot` returns it."""

from __future__ import annotations

import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from devwidget.capture.memory.roles import MemoryBlock
from devwidget.capture.source_code.stack import is_own, stack

Event = dict[str, Any]
_STACKS_OF_ALLOCATIONS = ("alloc", "all")
"""Values of `context` with which torch keeps the stack of each allocation."""


class MemoryHistory:
    """Writes an event for each allocation.

    Attributes:
        metadata: the text of `_set_memory_metadata`, which each event gets.

    Source of the keys: `torch/csrc/cuda/Module.cpp` and `torch/cuda/_memory_viz.py`.
    """

    def __init__(self) -> None:
        self.metadata = ""
        self._has_stacks = False
        self._most_events = sys.maxsize
        self._count_free: Callable[[int], int] = lambda index: 0
        self._events: defaultdict[int, deque[Event]] = defaultdict(lambda: deque(maxlen=self._most_events))

    def start(self, context: str | None, most_events: int, count_free: Callable[[int], int]) -> None:
        """Keep events from now on.

        Args:
            context: the events whose stacks are kept, as torch names them.
            most_events: how many events of each GPU are kept.
            count_free: returns the free bytes of a GPU.
        """
        self._has_stacks = context in _STACKS_OF_ALLOCATIONS
        self._most_events, self._count_free = most_events, count_free

    def clear(self) -> None:
        """Forget all events."""
        self._events.clear()

    def list_events(self, index: int) -> list[Event]:
        """List the events of a GPU, the oldest first."""
        return list(self._events.get(index, ()))

    def taken(self, block: MemoryBlock, held: int) -> None:
        """See `Listener`."""
        self._add_event("alloc", block.index, block.size, addr=block.address)

    def freed(self, block: MemoryBlock) -> None:
        """See `Listener`. A block dies in whatever code the garbage collector interrupts, whose stack says nothing."""
        for action in ("free_requested", "free_completed"):
            self._add_event(action, block.index, block.size, addr=block.address)

    def refused(self, index: int, size: int, held: int) -> None:
        """See `Listener`."""
        self._add_event("oom", index, size, addr=0, device_free=self._count_free(index))

    def _add_event(self, action: str, index: int, size: int, **fields: int) -> None:
        event: Event = {"action": action, "size": size, "stream": 0, "time_us": time.time_ns() // 1000, **fields}
        event["user_metadata"] = self.metadata
        frames = event["frames"] = []
        if self._has_stacks and not action.startswith("free"):
            for _, frame in stack(sys._getframe(1)):
                code = frame.f_code
                if not is_own(code.co_filename):
                    frames.append({"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name})
        self._events[index].append(event)
