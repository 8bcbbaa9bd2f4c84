"""Find attributes through which the replicas of DataParallel call the original module.

`replicate` copies the `__dict__` of each module. A bound method, a closure, a hook or a list of modules in it still refers to
the module that was wrapped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

from torch import nn

from devwidget.capture.object_fields import (
    copy_items,
    find_class_attribute,
    is_a,
    is_among,
    is_scalar,
)
from devwidget.capture.source_code import classes, statements
from devwidget.capture.source_code.provenance import only
from devwidget.capture.source_code.stack import is_users_code, locals_of
from devwidget.capture.tensors import is_module, modules_in, own
from devwidget.capture.walk import TooManyObjects, walk
from devwidget.records.site import Site

_DEEPEST = 6
_MOST_OBJECTS = 10_000
_REGISTERED = frozenset({"_parameters", "_buffers", "_modules"})


class Stored(NamedTuple):
    """An attribute that leads to the original module.

    Attributes:
        part: the module that has it.
        name: the name of the attribute.
        code: the outermost function that it leads to.
    """

    part: nn.Module
    name: str
    code: CodeType


def find_stored(root: nn.Module, runs: Callable[[CodeType, str], bool]) -> Stored | None:
    """Return the first attribute in a tree that leads back to one of its modules through a function that runs.

    Args:
        root: the wrapped module.
        runs: whether a function was running when the replica failed, given its code and the name of the attribute.
    """
    parts = modules_in(root)
    for part in parts:
        for name, value in copy_items(own(part)):
            if name in _REGISTERED or is_scalar(value):
                continue
            codes = _codes_back(value, parts)
            if any(runs(code, name) for code in codes):
                return Stored(part, name, codes[0])
    return None


def _codes_back(value: Any, parts: list[nn.Module]) -> list[CodeType]:
    """Return the functions through which a value leads to one of these modules, the outermost first; [] if it does not."""
    codes: list[CodeType] = []
    with contextlib.suppress(TooManyObjects):
        for place in walk([("", value)], enter=_is_entered, most=_MOST_OBJECTS, deepest=_DEEPEST):
            if is_among(place.value, parts):
                holders = [each.value for each in place.way()][1:]
                called = find_class_attribute(type(place.value), "forward")
                if holders and type(holders[0]) is MethodType:
                    called = holders[0].__func__
                codes += [each.__code__ for each in (*reversed(holders), called) if type(each) is FunctionType]
    return codes


def _is_entered(value: Any) -> bool:
    return not is_module(value) and not is_a(value, type)


def runs_original(frames: Iterable[FrameType], root: nn.Module) -> bool:
    """Return whether a variable of these frames is a module of the original tree, and not of a replica."""
    parts = modules_in(root)
    return any(is_module(value) and is_among(value, parts) for frame in frames for value in locals_of(frame).values())


def find_assignment(stored: Stored) -> Site | None:
    """Return the line that stored the attribute: in the class, else `model.forward = ...`, else the function itself."""
    site = classes.attribute_assignment(type(stored.part), stored.name)
    if site is not None or not is_users_code(stored.code):
        return site
    assigned = list(statements.replacements(stored.code.co_filename, stored.name))
    named = [each for each in assigned if stored.code.co_name in each.text]
    return only(named) or only(assigned) or statements.definition_site(stored.code)
