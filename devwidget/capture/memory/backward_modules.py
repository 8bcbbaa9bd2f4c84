"""Whose gradients are being computed: nodes of autograd's graph are numbered in the order of the forward pass."""

from __future__ import annotations

import bisect
import threading
from typing import Any

from devwidget.capture import torch_internals

MOST_SPANS = 50_000
_LEAF = 1 << 63
"""Nodes that accumulate gradients have the highest number that there is."""


class BackwardModules:
    """Which module ran when a node was made. Each thread numbers its own nodes."""

    def __init__(self) -> None:
        self._spans: dict[int, tuple[list[int], list[str | None]]] = {}

    def enter_module(self, module: str | None) -> None:
        """From here on `module` runs in this thread, None outside the model."""
        starts, modules = self._spans.setdefault(threading.get_ident(), ([], []))
        if len(starts) > MOST_SPANS:
            del starts[: MOST_SPANS // 2], modules[: MOST_SPANS // 2]
        starts.append(torch_internals.next_autograd_number())
        modules.append(module)

    def current_module(self) -> str | None:
        """The module whose node runs now; None if there is none, or if threads that count alike leave a doubt."""
        node: Any = torch_internals.current_autograd_node()  # None outside backward
        number = node._sequence_nr() if node is not None else _LEAF
        if number >= _LEAF:
            return None
        threads = list(self._spans.values())
        if len(threads) == 1:  # as nearly always
            return _module_at(number, *threads[0])
        found = {_module_at(number, *spans) for spans in threads}
        return found.pop() if len(found) == 1 else None


def _module_at(number: int, starts: list[int], modules: list[str | None]) -> str | None:
    place = bisect.bisect_right(starts, number) - 1
    return modules[place] if place >= 0 else None
