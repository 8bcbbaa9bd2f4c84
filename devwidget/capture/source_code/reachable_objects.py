"""Find objects that the running calls can reach through their variables.

Other objects may be anywhere in the process. Searching the garbage collector's lists would visit objects that other threads
are just creating, which crashes the interpreter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from devwidget.capture.object_fields import copy_items, is_a, module_name
from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.source_code.stack import Owner, is_users_class, stack
from devwidget.capture.walk import TooManyObjects as TooManyObjects
from devwidget.capture.walk import walk

_RECORDS = "devwidget.records."
"""devwidget's records, which hold no live object. A trace has as many as a step has operators."""
MOST_ITEMS = 256
MOST_OBJECTS = 50_000


def reachable_objects(frame: FrameType | None, *, roots: Iterable[Any] = (), deepest: int = 6) -> Iterator[Any]:
    """Yield what some roots, and a frame and its callers, can reach, the nearest first, without the frames that launched it.

    Args:
        frame: innermost frame.
        roots: further objects to search.
        deepest: objects and containers between a variable and a result.

    Raises:
        TooManyObjects: after `MOST_OBJECTS`.
    """
    named = [*(("", each) for each in roots), *((name, value) for name, value, _ in variables(frame))]
    places = walk(named, enter=is_of_program, most=MOST_OBJECTS, deepest=deepest, most_items=MOST_ITEMS)
    return (place.value for place in places)


def variables(frame: FrameType | None) -> Iterator[tuple[str, Any, FrameType]]:
    """Yield name, value and frame: locals of a call and its callers, then globals of their files."""
    users: dict[int, FrameType] = {}
    for owner, each in _calls_of_program(frame):
        if owner is not Owner.OURS and owner is not Owner.STEP:
            yield from ((name, value, each) for name, value in locals_of(each).items())
        if owner is Owner.USER:
            users.setdefault(id(each.f_globals), each)
    for each in users.values():
        yield from ((name, value, each) for name, value in copy_items(each.f_globals) if type(name) is str)


def _calls_of_program(frame: FrameType | None) -> list[tuple[Owner, FrameType]]:
    """Return frames from the innermost to the outermost of the user, or all if none is the user's."""
    frames = list(stack(frame))
    users = [index for index, (owner, _) in enumerate(frames) if owner is Owner.USER]
    if users:
        return frames[: users[-1] + 1]
    return frames


def is_of_program(value: Any) -> bool:
    """Return whether an object's content is searched: not for devwidget's records and library classes."""
    if is_a(value, type):
        return is_users_class(value)
    return not module_name(type(value)).startswith(_RECORDS)
