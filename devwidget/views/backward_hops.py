"""Copies that backward makes are the gradients of copies of the forward pass; their line is the line of those."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from devwidget.records.trace import Move


def with_forward_lines(moves: Iterable[Move]) -> list[Move]:
    """The moves; one of backward that undoes a copy of the forward pass bears the line and the module of that copy.

    Autograd runs last in, first out, on whatever line called `backward`, which is the same for all of them.
    """
    found, copies = [], dict[object, list[Move]]()
    for move in moves:
        alike = move.shape, move.dtype
        if move.phase in ("forward", "loss"):
            copies.setdefault((move.source, move.target, *alike), []).append(move)
        elif move.phase == "backward" and move.cause == "explicit":
            undone = copies.get((move.target, move.source, *alike))
            if undone and undone[-1].count == move.count:  # else it is the gradients of several lines together
                copy = undone.pop()
                move = replace(move, site=copy.site, module=copy.module)
        found.append(move)
    return found
