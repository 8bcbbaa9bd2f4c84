"""Functions of a class as its author wrote them, also where a decorator has put others of its own in their place."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

from devwidget.capture.object_fields import mro_of, names_of
from devwidget.capture.source_code.call_sites import is_library

MOST_WRAPPERS = 32


def functions_of(kind: type) -> Iterator[FunctionType]:
    """The user's functions in a class and its bases, nearest first, with those that a decorator has wrapped."""
    for base in mro_of(kind):
        yield from functions_in(base)


def functions_in(kind: type) -> Iterator[FunctionType]:
    """The same of one class alone."""
    for member in list(names_of(kind).values()):
        yield from written(member)


def written(member: object) -> Iterator[FunctionType]:
    """The user's functions behind a method, a property or a wrapper, the outermost first."""
    outer, seen = _inside(member), 0
    waiting = [outer] if outer is not None else []
    while waiting and seen < MOST_WRAPPERS:
        each, seen = waiting.pop(0), seen + 1
        if not is_library(each.__code__.co_filename):
            yield each
        waiting += _wrapped_by(each)


def _wrapped_by(function: FunctionType) -> list[FunctionType]:
    """What `functools.wraps` says that a function stands for, then the functions of the same name that it closes over."""
    told = _inside(function.__dict__.get("__wrapped__"))
    cells = [_inside(value) for value in map(_contents, function.__closure__ or ())]
    return [each for each in (told, *cells) if each is not None and each.__name__ == function.__name__]


def _contents(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _inside(member: object) -> FunctionType | None:
    if type(member) is staticmethod or type(member) is classmethod:
        member = member.__func__
    elif type(member) is property:
        member = member.fget
    return member if type(member) is FunctionType else None
