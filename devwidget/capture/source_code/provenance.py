"""Lineage by source: which line gave a tensor its value, for tensors that no recording saw being made."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType

import torch

from devwidget.capture.source_code import statements
from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.source_code.expressions import UNKNOWN, Scope, origin_of
from devwidget.capture.source_code.frames import name_in
from devwidget.capture.tensors import is_parameter, is_tensor
from devwidget.records.site import Site
from devwidget.records.syntax import parsed_expression, parsed_statement

MOST_STEPS = 16


@dataclass(frozen=True, slots=True)
class Origin:
    """The assignment that decided where a tensor is, as far as the frames that still exist tell it.

    Attributes:
        site: that line.
        tensors: the tensor and those on the same device that it was computed from.
        call, op, direct: source of the call on that line, its function, and whether that is torch's own.
        partner: name of a tensor on the right device that is at hand there.
    """

    site: Site | None
    tensors: tuple[torch.Tensor, ...]
    call: str = ""
    op: str = ""
    direct: bool = False
    partner: str = ""


def origin(
    frames: Sequence[FrameType], tensor: torch.Tensor, target: torch.device, same: Callable[[torch.Tensor], bool]
) -> Origin:
    """Follow a tensor back through the assignments of living frames, innermost first.

    Args:
        frames: user frames.
        tensor: whose story.
        target: where it should have been.
        same: whether another tensor shares what is wrong, the device or the dtype.
    """
    tensors, found, home, before = [tensor], None, None, 0
    for _ in range(MOST_STEPS):
        step = _assignment(frames, tensors[-1], home, before)
        if step is None:
            break
        value = _value(step[1].text)
        if value is None or _is_empty(value) or Scope(step[0]).value(value) is tensors[-1]:  # `mask = self.mask` hands it on
            break
        home, found = step
        before = found.line
        own = [t for t in _parents(home, found) if not any(t is old for old in tensors)] or _given(frames, home, found)
        parents = [t for t in own if same(t) and not any(t is old for old in tensors)]
        if not parents:
            break
        tensors.append(parents[0])
    if found is None or home is None:
        return Origin(None, tuple(tensors))
    call, op, direct = _call_of(home, found)
    return Origin(found, tuple(tensors), call, op, direct, _partner(home, found, target))


def _assignment(
    frames: Sequence[FrameType], tensor: torch.Tensor, home: FrameType | None, before: int
) -> tuple[FrameType, Site] | None:
    """The frame and line that gave a tensor its name. In `home` only lines above `before` count."""
    for frame in frames:
        name = re.split(r"[.\[]", name_in(frame, lambda value: value is tensor))[0]
        if name in ("", "self"):  # what `self` keeps is found through the model
            continue
        code = frame.f_code
        site = statements.assignment(code.co_filename, name, before if frame is home else frame.f_lineno)
        if site is None and name in frame.f_globals:
            site = statements.cell_assignment(name)
        own = site is not None and (name not in code.co_varnames or site.function == code.co_name)  # no argument's namesake
        if site is not None and own and not _denied(frame, site, tensor):
            return frame, site
    return None


def _denied(frame: FrameType, site: Site, tensor: torch.Tensor) -> bool:
    """Whether the line names another device than the tensor has: it is in a branch that did not run."""
    value = _value(site.text)
    asked = [k.value for k in value.keywords if k.arg == "device"] if isinstance(value, ast.Call) else []
    device = Scope(frame).value(asked[0]) if asked else UNKNOWN
    return isinstance(device, torch.device) and device != tensor.device


def _given(frames: Sequence[FrameType], home: FrameType, site: Site) -> list[torch.Tensor]:
    """What the caller gave for an argument that the line replaces: `ids = ids.unsqueeze(0)`, by the same name there."""
    name = site.text.partition("=")[0].strip()
    value = _value(site.text)
    own = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)] if value is not None else []
    code = home.f_code
    if name not in own or name not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return []
    above = frames[next(index for index, frame in enumerate(frames) if frame is home) + 1 :]
    found = (locals_of(frame).get(name) for frame in above)
    return [t for t in found if isinstance(t, torch.Tensor)][:1]


def _parents(frame: FrameType, site: Site) -> list[torch.Tensor]:
    """What a value was computed from; an activation is where it is because of its layer's weights, so it has none."""
    value = _value(site.text)
    found = [] if value is None else list(Scope(frame).leaves(value))
    return [] if any(is_parameter(t) for t in found) else found


def _call_of(frame: FrameType, site: Site) -> tuple[str, str, bool]:
    call, op = statements.assigned_call(site.text)
    if not call:
        return "", "", False
    node = parsed_expression(call)
    func = Scope(frame).value(node.func) if isinstance(node, ast.Call) else UNKNOWN
    direct = origin_of(func).startswith("torch") or func is getattr(torch, op, None)
    return call, op, direct


def _partner(frame: FrameType, site: Site, target: torch.device) -> str:
    """A tensor on the right device that the function has before that line, its arguments first."""
    code, variables = frame.f_code, locals_of(frame)
    if site.function != code.co_name or site.function == "<module>":
        return ""
    given = code.co_varnames[: code.co_argcount]
    earlier = [name for name in variables if name not in given and _assigned_above(frame, name, site)]
    names = [*given, *earlier]
    return next((n for n in names if is_tensor(t := variables.get(n)) and t.device == target), "")


def _assigned_above(frame: FrameType, name: str, site: Site) -> bool:
    found = statements.assignment(frame.f_code.co_filename, name, site.line)
    return found is not None and found.function == site.function


def _is_empty(value: ast.expr) -> bool:
    """`parts = []`: what is in it now came later."""
    elements = value.elts if isinstance(value, ast.List) else value.keys if isinstance(value, ast.Dict) else [value]
    return not elements


def _value(statement: str) -> ast.expr | None:
    node = parsed_statement(statement)
    return node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
