"""Tracebacks as Python alone would show them: without the frames that come of watching a program."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator
from types import CodeType, TracebackType

_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_OURS = tuple(os.path.join(_PACKAGE, folder, "") for folder in ("cli", "capture", "simulator"))
_OPERATORS, _MODULES = os.path.join("torch", "_ops.py"), os.path.join("torch", "nn", "modules", "module.py")
_PLAIN = "return forward_call(*args, **kwargs)"
"""How a module without hooks calls `forward`."""


def without_us(error: BaseException, known: frozenset[int] = frozenset()) -> None:
    """Take the frames out of an exception, of those that led to it, and of the members of a group."""
    if id(error) in known:
        return
    error.__traceback__ = _joined(_kept(error.__traceback__))
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for other in (error.__cause__, error.__context__, *members):
        if other is not None:
            without_us(other, known | {id(error)})


def _kept(trace: TracebackType | None) -> list[TracebackType]:
    """The entries that are the program's, with those of torch as they are where nobody watches."""
    kept: list[TracebackType] = []
    under_us = False
    for each in _entries(trace):
        code = each.tb_frame.f_code
        if code.co_filename.startswith(_OURS):
            if kept and kept[-1].tb_frame.f_code.co_name == "handle_torch_function":
                del kept[-2:]  # the function that asked us is called once more
            under_us = True
        elif under_us and code.co_filename.endswith(_OPERATORS):
            continue
        elif kept and code.co_name == "inner" and code.co_filename.endswith(_MODULES):
            kept[-1] = _without_hooks(kept[-1])
        else:
            kept.append(each)
            under_us = False
    return kept


def _entries(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _joined(entries: list[TracebackType]) -> TracebackType | None:
    trace: TracebackType | None = None
    for each in reversed(entries):
        trace = TracebackType(trace, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return trace


def _without_hooks(entry: TracebackType) -> TracebackType:
    """The entry of a module's call where it has no hooks."""
    offset, line = next(_plain_calls(entry.tb_frame.f_code), (entry.tb_lasti, entry.tb_lineno))
    return TracebackType(None, entry.tb_frame, offset, line)


def _plain_calls(code: CodeType) -> Iterator[tuple[int, int]]:
    """Offset and line of instructions that make the whole call."""
    for index, (line, last, first_column, last_column) in enumerate(code.co_positions()):
        text = linecache.getline(code.co_filename, line or 0)
        span = text[first_column or 0 : last_column or 0]
        if line is not None and line == last and text.strip() == _PLAIN and f"return {span}" == _PLAIN:
            yield 2 * index, line
