"""Objects that the calls under way can reach: through their variables, and what those hold.

Others may be anywhere in the process; to look for them in the garbage collector's lists would be to walk through those that
other threads are just making, which ends the interpreter.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections.abc import Iterable, Iterator
from types import CellType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from devwidget.capture.object_fields import copy_items, fields_of, is_a, is_scalar, module_name, names_of, parts_of
from devwidget.capture.source_code.call_sites import is_library, is_own, locals_of
from devwidget.capture.tensors import is_tensor

_flags = vars(type)["__flags__"].__get__
_MADE_WHILE_RUNNING = 1 << 9
"""`Py_TPFLAGS_HEAPTYPE`: what a cell or `exec` has defined, whose module has no file, and few classes in C."""
_RECORDS = "devwidget.records."
"""Facts, which hold nothing that is alive, and of which a trace has as many as a step has operators."""
MOST_ITEMS = 256
MOST_OBJECTS = 50_000


class TooManyObjects(LookupError):
    """There is more than can be looked at."""


def reachable_objects(frame: FrameType | None, *, roots: Iterable[Any] = (), deepest: int = 6) -> Iterator[Any]:
    """What some roots can reach, then a frame and those that called it, the nearest first; what launched it does not count.

    Args:
        frame: the innermost.
        roots: what is looked through before them.
        deepest: objects and containers between a variable and what is looked for.

    Raises:
        TooManyObjects: after `MOST_OBJECTS`.
    """
    seen: dict[int, Any] = {}  # objects too: an id is somebody else's when its object is gone
    for level in (list(roots), list(_variables(frame))):
        for _ in range(deepest + 1):
            fresh = {id(value): value for value in level if id(value) not in seen and not is_scalar(value)}
            seen |= fresh
            yield from fresh.values()
            if len(seen) > MOST_OBJECTS:
                raise TooManyObjects
            level = [part for value in fresh.values() for part in _parts(value)]


def _variables(frame: FrameType | None) -> Iterator[Any]:
    frames = _frames(frame)
    for each in frames:
        if not is_own(each.f_code.co_filename):
            yield from locals_of(each).values()
    users = (each for each in frames if not is_library(each.f_code.co_filename))
    for namespace in {id(each.f_globals): each.f_globals for each in users}.values():
        yield from (value for _, value in copy_items(namespace))


def _frames(frame: FrameType | None) -> list[FrameType]:
    """Frames from the innermost to the outermost of the user, or all where none is the user's."""
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    users = [index for index, each in enumerate(frames) if not is_library(each.f_code.co_filename)]
    return frames[: users[-1] + 1] if users else frames


def _parts(value: Any) -> Iterator[Any]:
    """What a value holds, as Python stores it; nothing of modules, tensors and records, and the first items of containers."""
    if is_a(value, ModuleType) or is_tensor(value) or module_name(type(value)).startswith(_RECORDS):
        return
    if is_a(value, type):
        yield from (member for _, member in list(names_of(value).items())) if is_users(value) else ()
        return
    yield type(value)
    yield from itertools.islice(parts_of(value), MOST_ITEMS)
    yield from (part for _, part in fields_of(value))
    yield from _parts_of_callable(value)


def _parts_of_callable(value: Any) -> Iterator[Any]:
    if type(value) is MethodType:
        yield from (value.__self__, value.__func__)
    elif type(value) is FunctionType:
        yield from value.__closure__ or ()
    elif type(value) is CellType:
        with contextlib.suppress(ValueError):  # not assigned yet
            yield value.cell_contents
    elif type(value) is functools.partial:
        yield from (value.func, value.args, value.keywords)
    elif type(value) is classmethod or type(value) is staticmethod:
        yield value.__func__
    elif type(value) is property:
        yield from (value.fget, value.fset, value.fdel)


def is_users(kind: type) -> bool:
    """Whether a class was written by the user, so that what it defines is of interest."""
    if module_name(kind) == "__main__":  # whoever runs the program may have put its own module there
        return True
    module = sys.modules.get(module_name(kind))
    file = vars(module).get("__file__") if type(module) is ModuleType else None
    return not is_library(file) if type(file) is str else bool(_flags(kind) & _MADE_WHILE_RUNNING)
