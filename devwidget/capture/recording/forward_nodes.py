"""Remember which line and module made a node of autograd's graph, so that backward knows whose gradients it computes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from devwidget.capture import torch_internals
from devwidget.capture.recording.parallel_calls import WrapperCall, find_call
from devwidget.capture.source_code.call_sites import RawSite

MOST_NODES = 100_000
"""Nodes remembered per thread, the last ones."""
MOST_THREADS = 256
"""Threads remembered. Replicas of earlier loops are not needed again."""
MadeAt = tuple[RawSite | None, str | None]
"""The user's line, and the path of the module that ran; None outside the model."""


class NumberedNodes:
    """The nodes that one thread made, by number. Each thread counts its own.

    Attributes:
        call: the DataParallel call if the thread runs a replica.
    """

    __slots__ = ("call", "made")

    def __init__(self, call: WrapperCall | None) -> None:
        self.call = call
        self.made: dict[int, MadeAt] = {}

    def note_node(self, next_number: int, site: RawSite | None, module: str | None) -> None:
        """Note an operator that runs right after its node was made."""
        if len(self.made) > MOST_NODES:
            # A new dict: to ask for the first key of one whose first ones are deleted walks past them all.
            self.made = dict(itertools.islice(self.made.items(), MOST_NODES // 2, None))
        self.made[next_number - 1] = site, module

    def find_node(self, number: int) -> MadeAt | None:
        """Return what made the node of a number."""
        if number not in self.made and number > next(iter(self.made), number):
            # What an operator writes over is copied first where its gradient needs it: the copy has the node that comes next.
            return self.made.get(number + 1)
        return self.made.get(number)


class ForwardNodes:
    """The nodes of one recording."""

    def __init__(self) -> None:
        self._threads: list[NumberedNodes] = []

    def begin_thread(self, call: WrapperCall | None = None) -> NumberedNodes:
        """Register a thread that begins to run the program, or a replica of a call."""
        if len(self._threads) >= MOST_THREADS:
            del self._threads[1]  # the first is the one that records
        nodes = NumberedNodes(call)
        self._threads.append(nodes)
        return nodes

    def find_node(self) -> MadeAt | None:
        """Return what made the running node; None outside backward, or if several threads use its number."""
        node: Any = torch_internals.current_autograd_node()
        if node is None:
            return None
        number, threads = node._sequence_nr(), tuple(self._threads)
        if len(threads) == 1:  # as nearly always
            return threads[0].find_node(number)
        found = _find_in(threads, number)
        if len(found) > 1:
            call = find_call(node)
            found = _find_in((each for each in threads if each.call is call), number)
        if len(found) == 1:
            return found.pop()
        return None

    def find_site(self) -> RawSite | None:
        """Return the line that made the running node."""
        made = self.find_node()
        if made is None:
            return None
        return made[0]


def _find_in(threads: Iterable[NumberedNodes], number: int) -> set[MadeAt]:
    found = {each.find_node(number) for each in threads}
    return {made for made in found if made is not None}
