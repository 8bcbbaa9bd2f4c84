"""Find what the code of a frame calls a value, and what the running calls can reach through their variables."""

from __future__ import annotations

import ast
import contextlib
import functools
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from types import FrameType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from devwidget.capture.object_fields import copy_items, is_a, module_name
from devwidget.capture.source_code.stack import Owner, globals_used, is_users_class, locals_of, stack
from devwidget.capture.tensors import is_module, own_tensors, walk_modules
from devwidget.capture.walk import TooManyObjects, walk
from devwidget.records.site import cell_label, cells
from devwidget.records.syntax import parsed_expression

_MOST_ITEMS = 64
"""Items of a container in which a value is searched."""
_MOST_NAMED = 20_000
DEEPEST = 3
"""Nesting of containers in which it is searched."""


def name_in(frame: FrameType, wanted: object, read: Collection[str] = ()) -> str:
    """Return the simplest variable, attribute or item of a frame that is an object; "" for none.

    Args:
        frame: whose variables are searched.
        wanted: the object.
        read: names that come first, because the running line reads them.
    """
    named = {**globals_used(frame), **locals_of(frame)}
    variables = [(name, value) for name, value in named.items() if not name.startswith("@")]  # pytest's
    of_line = [(name, value) for name, value in variables if name in read]
    return _find_path(of_line, wanted) or _find_path(variables, wanted) or _find_held(variables, wanted)


def holds(value: Any, wanted: object) -> bool:
    """Return whether a value is an object, or has it in an attribute or an item."""
    return bool(_find_path([("it", value)], wanted))


def _find_path(variables: list[tuple[str, Any]], wanted: object) -> str:
    """Search attributes of any object, items of containers, and the tensors of submodules."""
    found = _path_to(wanted, variables, _has_attributes, 1) or _path_to(wanted, variables, _is_container, DEEPEST)
    if found:
        return found
    for name, value in variables:
        if not is_module(value):
            continue
        for path, tensor in deep_tensors(value):
            if tensor is wanted:
                return name + path
    return ""


def _find_held(variables: list[tuple[str, Any]], wanted: object) -> str:
    """Search the containers in public attributes of objects: `self.hidden[0]`."""
    held = []
    for path, value in _reached(variables, _has_attributes, 1):
        if _is_public_container(path, value):
            held.append((path, value))
    return _path_to(wanted, held, _is_container, DEEPEST)


def _path_to(wanted: object, variables: list[tuple[str, Any]], enter: Callable[[Any], bool], deepest: int) -> str:
    for path, value in _reached(variables, enter, deepest):
        if value is wanted:
            return path
    return ""


def _reached(variables: list[tuple[str, Any]], enter: Callable[[Any], bool], deepest: int) -> Iterator[tuple[str, Any]]:
    """Yield what the variables reach, each with the path that code would write."""
    with contextlib.suppress(TooManyObjects):
        for place in walk(variables, enter=enter, most=_MOST_NAMED, deepest=deepest, most_items=_MOST_ITEMS):
            if "<" not in place.path:
                yield place.path, place.value


def _is_public_container(path: str, value: Any) -> bool:
    """Whether a value is the container in an attribute such as `self.hidden`."""
    owner, _, attribute = path.rpartition(".")
    return owner.isidentifier() and not attribute.startswith("_") and _is_container(value)


def _has_attributes(value: Any) -> bool:
    return not is_a(value, (type, FunctionType, MethodType))


def _is_container(value: Any) -> bool:
    return is_a(value, (dict, tuple)) or type(value) is list or type(value) is functools.partial


def modules_named(frames: Iterable[FrameType]) -> Iterator[tuple[str, nn.Module]]:
    """Yield modules that the code of frames has a name for, with "" for `self`: a model, a metric, an agent."""
    for frame in frames:
        variables = globals_used(frame)
        if frame.f_code.co_name != "<module>":  # at top level: every variable of the notebook
            variables |= locals_of(frame)
        for name, value in variables.items():
            if is_module(value) and name == "self":
                yield "", value
            elif is_module(value):
                yield name, value


def deep_tensors(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Return parameters and buffers of a module and its submodules, as code would write them: `.layers[0].weight`."""
    found = []
    for path, part in sorted(walk_modules(module), key=lambda named: named[0].count(".")):
        for name, tensor in own_tensors(part).items():
            written = re.sub(r"\.(\d+)(?=\.)", r"[\1]", f".{path}.{name}".replace("..", "."))
            found.append((written, tensor))
    return found


def is_place(node: ast.expr) -> bool:
    """Return whether an expression computes nothing: it reads a variable, an attribute or an item."""
    computing = (ast.Call, ast.BinOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Lambda, ast.comprehension)
    return not any(isinstance(part, computing) for part in ast.walk(node))


def path_of(text: str) -> tuple[str, tuple[Any, ...]]:
    """Return `batch` and `("ids", 0)` for `batch['ids'][0]`: the variable, then items and attributes, outermost first."""
    node, keys = parsed_expression(text), list[Any]()
    while True:
        match node:
            case ast.Attribute(value=node, attr=key) | ast.Subscript(value=node, slice=ast.Constant(value=key)):
                keys.insert(0, key)
            case ast.Subscript(value=node):
                keys.insert(0, None)
            case ast.Name(id=name):
                return name, tuple(keys)
            case _:
                return "", tuple(keys)


# What the running calls can reach. Other objects may be anywhere in the process: searching the garbage collector's lists would
# visit objects that other threads are just creating, which crashes the interpreter.


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


def other_cells(frame: FrameType) -> list[str]:
    """Return the other cells of the notebook whose variables the code of a frame has; none outside of a notebook."""
    file = frame.f_code.co_filename
    if not cell_label(file) and frame.f_globals is not vars(sys.modules["__main__"]):
        return []
    return [each for each in cells() if each != file]


def is_of_program(value: Any) -> bool:
    """Return whether an object's content is searched: not for devwidget's records and library classes."""
    if is_a(value, type):
        return is_users_class(value)
    return not module_name(type(value)).startswith(_RECORDS)
