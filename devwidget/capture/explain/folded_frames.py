"""Hide devwidget's frames from tracebacks in a notebook. The exception, `%tb` and `%debug` still have all frames."""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from devwidget.capture.explain.traceback_frames import chain_of, steps_to_show
from devwidget.capture.source_code.stack import steps_down
from devwidget.records.schema.message import Message, in_language

_owners: weakref.WeakKeyDictionary[Any, set[object]] = weakref.WeakKeyDictionary()
"""Owners that request folded tracebacks of a shell."""


@contextlib.contextmanager
def folded(error: BaseException | None) -> Iterator[int]:
    """Remove devwidget's frames from an exception and its causes while the block runs; yield the number removed."""
    changed: list[tuple[TracebackType, TracebackType | None]] = []
    left_out = 0
    try:
        for each in chain_of(error):
            there = list(steps_down(each.__traceback__))
            shown = list(dict.fromkeys([*there[:1], *steps_to_show(each.__traceback__)]))  # the first one holds the others
            left_out += len(there) - len(shown)
            for step, following in zip(shown, [*shown[1:], None], strict=False):
                changed.append((step, step.tb_next))
                step.tb_next = following
        yield left_out
    finally:
        for step, following in reversed(changed):
            step.tb_next = following


def fold(shell: Any, owner: object) -> None:
    """Make an IPython shell fold its tracebacks, until each owner has called `unfold`."""
    printer = shell.InteractiveTB
    owners = _owners.setdefault(printer, set())
    if not owners:
        printer.structured_traceback = _folding(printer.structured_traceback)
    owners.add(owner)


def unfold(shell: Any, owner: object) -> None:
    """Undo `fold`. No effect if the shell does not fold."""
    printer = shell.InteractiveTB
    owners = _owners.get(printer, set())
    owners.discard(owner)
    if not owners and _owners.pop(printer, None) is not None:
        vars(printer).pop("structured_traceback", None)


def _folding(original: Callable[..., list[str]]) -> Callable[..., list[str]]:
    @functools.wraps(original)
    def structured_traceback(kind: Any, error: Any, trace: Any = None, *args: Any, **kwargs: Any) -> list[str]:
        asked_for = sys.exception() is None  # `%tb`, which is to show all of it
        if asked_for or not isinstance(trace, TracebackType):
            return original(kind, error, trace, *args, **kwargs)
        with folded(error) as left_out:
            lines = list(original(kind, error, trace, *args, **kwargs))
        if left_out and len(lines) > 1:
            one = "[... 1 frame of devwidget left out; %tb shows all]\n"
            many = "[... {count} frames of devwidget left out; %tb shows all]\n"
            lines.insert(-1, in_language(Message.of(left_out, one, many, count=left_out)))
        return lines

    return structured_traceback
