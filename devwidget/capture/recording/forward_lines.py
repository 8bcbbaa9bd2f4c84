"""Lines of the forward pass by the numbers of the nodes that they made: autograd runs those on whatever line asked for it."""

from __future__ import annotations

import itertools
import threading
from typing import Any

from devwidget.capture import torch_internals
from devwidget.capture.source_code.call_sites import RawSite

MOST_NODES = 100_000
"""Nodes of one thread whose lines are known, the last ones."""


class ForwardLines:
    """Which line made a node. Each thread numbers its own nodes, and an operator runs right after its node was made."""

    def __init__(self) -> None:
        self._lines: dict[int, dict[int, RawSite | None]] = {}

    def note_line(self, site: RawSite | None) -> None:
        """An operator runs at this line, in this thread."""
        thread, number = threading.get_ident(), torch_internals.next_autograd_number() - 1
        lines = self._lines.get(thread)
        if lines is None:
            lines = self._lines[thread] = {}
        elif len(lines) > MOST_NODES:
            for old in list(itertools.islice(lines, MOST_NODES // 2)):
                del lines[old]
        lines.setdefault(number, site)

    def find_site(self) -> RawSite | None:
        """The line that made the node that runs now; None if there is none, or if threads that count alike leave a doubt."""
        node: Any = torch_internals.current_autograd_node()  # None outside backward
        if node is None:
            return None
        number = node._sequence_nr()
        tables = list(self._lines.values())
        if len(tables) == 1:  # as nearly always
            return tables[0].get(number)
        found = {lines[number] for lines in tables if number in lines}
        return found.pop() if len(found) == 1 else None
