"""Copies that backward makes are the gradients of copies of the forward pass; their line is the line of those."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from devwidget.records.trace import Move


def with_forward_lines(moves: Iterable[Move]) -> list[Move]:
    """The moves; one of backward that undoes a copy of the forward pass bears the line and the module of that copy."""
    pairs = with_forward_copies(moves)
    return [replace(move, site=copy.site, module=copy.module) if copy else move for move, copy in pairs]


def with_forward_copies(moves: Iterable[Move]) -> list[tuple[Move, Move | None]]:
    """Each move, and the copy of the forward pass that it undoes, if it is one of backward and that is known.

    Autograd runs last in, first out, on whatever line called `backward`, which is the same for all of them.
    """
    found, copies = [], dict[object, list[Move]]()
    for move in moves:
        alike, copy = (move.shape, move.dtype), None
        if move.phase in ("forward", "loss"):
            copies.setdefault((move.source, move.target, *alike), []).append(move)
        elif move.phase == "backward" and move.cause == "explicit":
            undone = copies.get((move.target, move.source, *alike))
            if undone and undone[-1].count == move.count:  # else it is the gradients of several lines together
                copy = undone.pop()
        found.append((move, copy))
    return found
