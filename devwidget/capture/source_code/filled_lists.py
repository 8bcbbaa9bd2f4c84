"""Find the line that put a tensor into a list: `losses.append(loss)`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from types import FrameType

import torch

from devwidget.capture.object_fields import copy_items, dict_of, is_among
from devwidget.capture.source_code import statements
from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.source_code.expressions import Scope
from devwidget.capture.source_code.frames import name_in
from devwidget.capture.source_code.source_files import read_file
from devwidget.records.site import Site, cell_label, cells
from devwidget.records.syntax import parsed_expression


def find_append(frames: Sequence[FrameType], tensor: torch.Tensor) -> Site | None:
    """Return the one statement that appends to the list which a frame has the tensor in.

    Args:
        frames: frames of the user, innermost first.
        tensor: an item of the list.
    """
    for frame in frames:
        name = _name_of_list(frame, tensor)
        found = list(_appends(frame, name)) if name else []
        if len(found) == 1:
            return found[0]
    return None


def _name_of_list(frame: FrameType, tensor: torch.Tensor) -> str:
    match parsed_expression(name_in(frame, tensor)):
        case ast.Subscript(value=owner) if type(Scope(frame).value(owner)) is list:
            return ast.unparse(owner)
    for name, value in copy_items(dict_of(locals_of(frame).get("self"))):
        if type(value) is list and is_among(tensor, value):
            return f"self.{name}"
    return ""


def has_item(value: ast.expr, keys: Sequence[object]) -> bool:
    """Return whether a literal such as `{"loss": []}` has the item at these keys; True if unknown."""
    for key in keys:
        match value:
            case ast.List(elts=items) | ast.Tuple(elts=items) if not isinstance(key, str):
                return bool(items)
            case ast.Dict(keys=names, values=values):
                found = [each for name, each in zip(names, values, strict=True) if getattr(name, "value", None) == key]
                if not found:
                    return None in names
                value = found[0]
            case _:
                return True
    return True


def _appends(frame: FrameType, name: str) -> Iterator[Site]:
    file = frame.f_code.co_filename
    files = [file]
    if cell_label(file) or frame.f_globals is vars(sys.modules["__main__"]):
        files += [each for each in cells() if each != file]
    for each in files:
        for node in read_file(each).statements:
            match node:
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr="append"), args=[_])):
                    if ast.unparse(owner) == name:
                        yield statements.site_at(each, node.lineno)
