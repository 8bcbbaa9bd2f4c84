"""Histories: what made an object that is older than the recording, found through the variables of the frames that still run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import FrameType

import torch

from devwidget.capture.object_fields import copy_items, dict_of, is_a, is_scalar
from devwidget.capture.source_code.call_sites import globals_used, locals_of
from devwidget.capture.source_code.expressions import Scope
from devwidget.capture.source_code.frames import MOST_ITEMS
from devwidget.capture.source_code.past.decisions import Aspect, Maker
from devwidget.capture.source_code.past.makers import makers
from devwidget.capture.source_code.past.past_calls import PastCall
from devwidget.capture.source_code.past.running_calls import TopLevel, running_call, top_level
from devwidget.capture.source_code.value_paths import Keys, path_of
from devwidget.records.site import Site


def construction(frames: Sequence[FrameType], wanted: object) -> Maker | None:
    """The one call that made an object; None if the source does not tell it."""
    found = [each for each in _find_makers(frames, wanted, (), "object", moves=False) if each.op == type(wanted).__name__]
    return found[0] if len({each.site for each in found}) == 1 else None


def filling(frames: Sequence[FrameType], owner: object, keys: Keys) -> Site | None:
    """The one line that put something into an object; ... stands for any item."""
    sites = {each.site for each in _find_makers(frames, owner, keys, "object", moves=False) if not each.op}
    return sites.pop() if len(sites) == 1 else None


def decisions(
    frames: Sequence[FrameType], owner: object, paths: Iterable[str], tensor: torch.Tensor, aspect: Aspect, *, moves: bool
) -> list[Maker]:
    """The calls that may have decided the device or dtype of what an object holds; one line has them all, or there are none.

    Args:
        frames: of the user, innermost first.
        owner: the object.
        paths: where in it the tensor is: `layers.0.weight`, `cache['a']`; several for a shared one.
        tensor: the tensor.
        aspect: what is asked.
        moves: whether a move of what holds it moves it too, as with parameters.
    """
    found = [
        m for path in paths for m in _find_makers(frames, owner, _keys(path), aspect, moves=moves) if m.decides(tensor, aspect)
    ]
    return list(dict.fromkeys(found)) if len({each.site for each in found}) == 1 else []


def _keys(path: str) -> Keys:
    """`("layers", "0", "cache", "a")` of `layers.0.cache['a']`, whose numbers are no Python."""
    dotted, bracket, rest = path.partition("[")
    return (*dotted.split("."), *(path_of(f"_{bracket}{rest}")[1] if bracket else ()))


def _find_makers(frames: Sequence[FrameType], wanted: object, keys: Keys, aspect: Aspect, *, moves: bool) -> list[Maker]:
    for index, frame in enumerate(frames):
        is_top = frame.f_code.co_name == "<module>"
        path = _path(frame, wanted) if is_top or aspect == "object" else None
        scope = _as_source(frame, frames[index + 1 :]) if path is not None else None
        if path is not None and isinstance(scope, PastCall):
            file, line = frame.f_code.co_filename, frame.f_lineno
            here = scope.site_of_line(file, line) if isinstance(scope, TopLevel) else Site(file, line, "", scope.name)
            name, own = path
            found = makers(ast.Name(name, ast.Load()), scope, here, (*own, *keys), aspect, moves=moves)
            made = [_show_as_known(each) for each in found if isinstance(each, Maker)]
            if made or is_top:
                return made
    return []


def _as_source(frame: FrameType, above: Sequence[FrameType]) -> Scope | None:
    """A frame as its source tells it: what it has assigned is not read, but followed."""
    if frame.f_code.co_name == "<module>":
        return top_level(frame)
    return running_call(frame, above[0] if above else None, 0)


def _show_as_known(made: Maker) -> Maker:
    return replace(made, site=made.scope.shown(made.site)) if isinstance(made.scope, TopLevel) else made


def path_text(frame: FrameType, wanted: object) -> str:
    """`checkpoint['model']`, or `checkpoint.model`; "" for what no variable of a frame leads to."""
    path = _path(frame, wanted)
    if path is None or not path[1]:
        return path[0] if path is not None else ""
    return f"{path[0]}[{path[1][0]!r}]"


def _path(frame: FrameType, wanted: object) -> tuple[str, Keys] | None:
    """A variable of a frame and the item of it that is the object."""
    variables = {**globals_used(frame), **locals_of(frame)}
    found = next((name for name, value in variables.items() if value is wanted), None)
    if found is not None:
        return found, ()
    parts = ((name, key) for name, value in variables.items() for key, part in _parts(value) if part is wanted)
    name, key = next(parts, (None, None))
    return (name, (key,)) if name is not None else None


def _parts(value: object) -> Iterator[tuple[object, object]]:
    if type(value) is dict:
        yield from ((key, part) for key, part in copy_items(value)[:MOST_ITEMS] if is_scalar(key))
    elif type(value) is list or type(value) is tuple:
        yield from enumerate(value[:MOST_ITEMS])
    elif is_a(dict_of(value), dict):
        yield from copy_items(dict_of(value))[:MOST_ITEMS]
