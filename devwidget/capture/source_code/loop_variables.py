"""Find where a misplaced tensor entered the program: the variables of the outermost function that has it."""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType, FunctionType
from typing import Any

import torch

from devwidget.capture.modules import is_module
from devwidget.capture.object_fields import copy_items, dict_of, find_class_attribute, is_a, is_among, is_exactly
from devwidget.capture.source_code.call_sites import locals_of, raw_site, to_site
from devwidget.capture.source_code.stack import user_frame
from devwidget.capture.tensors import DEVICE, is_tensor
from devwidget.records.trace import Taken

DEEPEST = 3
"""Nesting of containers: a list of dicts, such as a detector's targets; a graph keeps its fields in an object."""


def variables_taken(frames: Sequence[FrameType], family: Sequence[torch.Tensor], target: torch.device) -> Taken | None:
    """Return the variables of the outermost of these frames that has one of the tensors in its own variable.

    Args:
        frames: frames of the user, innermost first.
        family: the misplaced tensor and the tensors that it was computed from.
        target: the device that it should have been on.
    """
    for frame in reversed(frames):
        variables = {name: value for name, value in locals_of(frame).items() if name.isidentifier() and name != "self"}
        holding = [name for name, value in variables.items() if any(is_among(each, family) for each in _tensors(value))]
        if not holding:
            continue
        kinds = []
        for name in dict.fromkeys((*holding, *variables)):
            kind = _kind(variables[name], family[0].device)
            if kind:
                kinds.append((name, kind))
        above = to_site(raw_site(user_frame(frame.f_back)))
        return Taken(to_site(raw_site(frame)), tuple(holding), tuple(kinds), _name_of(frame, target), above)
    return None


def _tensors(value: Any, depth: int = DEEPEST) -> list[torch.Tensor]:
    if is_tensor(value):
        return [value]
    found: list[torch.Tensor] = []
    for part in _parts(value) if depth else ():
        found += _tensors(part, depth - 1)
    return found


def _parts(value: Any) -> list[Any]:
    """Return the parts of plain containers, and of objects with their own `to`. Other user classes are skipped."""
    if is_exactly(value, (list, tuple)):
        return list(value)
    if type(value) is dict or _has_move(value):
        fields = value if type(value) is dict else dict_of(value)
        return [part for _, part in copy_items(fields)]
    return []


def _has_move(value: Any) -> bool:
    """Return whether an object has its own `to`, as graphs and tokenizer batches do. Modules do not count as data."""
    fields = dict_of(value) if not is_a(value, type) else {}
    return bool(fields) and not is_module(value) and type(find_class_attribute(type(value), "to")) is FunctionType


def _kind(value: Any, device: torch.device) -> str:
    """Return what is to be moved, and how; "" for other values, and if a part of it is already elsewhere."""
    tensors = _tensors(value)
    if not tensors or any(tensor.device != device for tensor in tensors):
        return ""
    if is_tensor(value):
        return "tensor"
    if _has_move(value):
        return "object"
    parts = _parts(value)
    if type(value) is dict:
        return _kind_of_dict(parts)
    if all(map(is_tensor, parts)):
        return type(value).__name__
    if type(value) is list and all(type(part) is dict and _kind(part, device) == "dict" for part in parts):
        return "list of dicts"
    return ""


def _kind_of_dict(parts: list[Any]) -> str:
    """Return the kind of a dict. A dict of dicts of tensors has none: moving its values would not move the inner ones."""
    if all(map(is_tensor, parts)):
        return "dict"
    if any(_tensors(part) for part in parts if not is_tensor(part) and not _has_move(part)):
        return ""
    return "dict of more"


def _name_of(frame: FrameType, target: torch.device) -> str:
    """Return how the function writes the right device: a variable, `self.device`, a global; "" without one."""
    own = locals_of(frame)
    kept = ((f"self.{name}", value) for name, value in copy_items(dict_of(own.get("self"))) if type(name) is str)
    for name, value in (*own.items(), *kept, *copy_items(frame.f_globals)):
        if not name.startswith("_") and _means(value, target):
            return str(name)
    return ""


def _means(value: Any, target: torch.device) -> bool:
    if type(value) is not DEVICE and not (type(value) is str and value.startswith(target.type)):
        return False
    return str(value) == str(target) or (str(value) == target.type and not target.index)
