"""Lineage by source: which line gave a tensor its value, for tensors that no recording saw being made."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import FrameType

import torch

from devwidget.capture.modules import is_module
from devwidget.capture.source_code import statements
from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.source_code.expressions import UNKNOWN, Scope, origin_of
from devwidget.capture.source_code.frames import name_in
from devwidget.capture.source_code.gradient_functions import MoveInForward, is_from_context, move_in_forward
from devwidget.capture.source_code.past.decisions import Aspect, Maker
from devwidget.capture.source_code.past.lost_values import argument_sources
from devwidget.capture.source_code.past.makers import makers
from devwidget.capture.source_code.past.past_calls import PastCall, definition_of
from devwidget.capture.source_code.past.running_calls import enclosing_call, running_call, top_level
from devwidget.capture.source_code.past.variable_changes import change_of
from devwidget.capture.source_code.value_paths import Keys, keys_of, path_of, selected
from devwidget.capture.tensors import is_parameter, is_tensor
from devwidget.records.site import Site
from devwidget.records.syntax import parsed, parsed_expression, parsed_statement

MOST_STEPS = 16


@dataclass(frozen=True, slots=True)
class Origin:
    """The assignment that decided where a tensor is, as far as the frames that still exist tell it.

    Attributes:
        site: that line.
        tensors: the tensor and those on the same device that it was computed from.
        call, op, direct: source of the call on that line, its function, and whether that is torch's own.
        partners: names of tensors on the right device that are at hand there.
        dropped: a later line that asked to move it, and kept nothing.
    """

    site: Site | None
    tensors: tuple[torch.Tensor, ...]
    call: str = ""
    op: str = ""
    direct: bool = False
    partners: tuple[str, ...] = ()
    dropped: Site | None = None


def origin(frames: Sequence[FrameType], tensor: torch.Tensor, target: torch.device, aspect: Aspect = "device") -> Origin:
    """Follow a tensor back through the assignments of living frames, innermost first.

    Args:
        frames: user frames.
        tensor: whose story.
        target: where it should have been.
        aspect: what is wrong with it, which those that it was computed from share.
    """
    tensors, last = [tensor], _Step(None, None)
    while len(tensors) < MOST_STEPS:
        step = _step(frames, tensors[-1], last, aspect)
        if step is None:
            break
        last = step if step.site is not None or step.makers else last
        parents = [t for t in step.parents if _is_alike(t, tensor, aspect) and not any(t is old for old in tensors)]
        if not parents:
            break
        tensors.append(parents[0])
    return _make_origin(last, tuple(tensors), target)


def _is_alike(one: torch.Tensor, other: torch.Tensor, aspect: Aspect) -> bool:
    return one.dtype == other.dtype if aspect == "dtype" else one.device == other.device


@dataclass(frozen=True, slots=True)
class _Step:
    """One step back: the frame and the line that assigned a value, or what it is an item of, and what that came from."""

    frame: FrameType | None
    site: Site | None
    parents: tuple[torch.Tensor, ...] = ()
    makers: tuple[Maker, ...] = ()
    is_item: bool = False


def _step(frames: Sequence[FrameType], tensor: torch.Tensor, last: _Step, aspect: Aspect) -> _Step | None:
    """What gave a tensor its value: the line that assigned it, else what the caller wrote for the argument that it is."""
    assigned = _assignment(frames, tensor, last.frame, last.site.line if last.site is not None else 0, aspect)
    if assigned is None:
        return _of_sources(None, None, tensor, argument_sources(frames, tensor, aspect), aspect)
    frame, site, keys = assigned
    value = _value(site.text, site.line)
    if value is None or _is_empty(value):
        return None
    if _moved_in_forward(frame, site, tensor.device) is not None:
        return _Step(frame, site)
    handed = Scope(frame).value(value)
    if handed is not UNKNOWN and not isinstance(value, ast.Tuple | ast.List) and selected(handed, keys) is tensor:
        name, path = path_of(ast.unparse(value))
        filled = _find_filling(frames, frame, name, (*path, *keys), site.line)
        if filled is None:
            above = frames[next(index for index, each in enumerate(frames) if each is frame) + 1 :]
            return _step(above, tensor, last, aspect) if above else None  # `mask = self.mask`, `x, y = batch`
        site, keys = filled  # `mean = state['mean']`
        value = _value(site.text, site.line) or value
    own = _parents(frame, site, tensor, aspect)
    if own is None:
        return _Step(frame, site)
    found = _of_sources(frame, site, tensor, makers(value, _scope(frames, frame, site), site, keys, aspect), aspect)
    return replace(found, is_item=bool(keys), parents=(*own, *_find_given(frames, frame, site), *found.parents))


def _scope(frames: Sequence[FrameType], frame: FrameType, site: Site) -> Scope:
    """The variables of a frame as they were at a line."""
    after = frames[next(index for index, each in enumerate(frames) if each is frame) + 1 :]
    if site.function == frame.f_code.co_name:
        return running_call(frame, after[0] if after else None, site.line)
    return enclosing_call(frame, site.line) if site.file == frame.f_code.co_filename else Scope(frame)


def _of_sources(
    frame: FrameType | None, site: Site | None, tensor: torch.Tensor, found: list[Maker | torch.Tensor], aspect: Aspect
) -> _Step:
    made = [m for m in found if isinstance(m, Maker) and m.decides(tensor, aspect)]
    return _Step(frame, site, tuple(t for t in found if is_tensor(t)), tuple(dict.fromkeys(made)))


def _make_origin(last: _Step, tensors: tuple[torch.Tensor, ...], target: torch.device) -> Origin:
    """The one call that made the tensor, else the line that assigned it."""
    calls = {(m.site, m.call) for m in last.makers}
    if len(calls) == 1:
        (made, *_) = last.makers
        partners = made.partners(target) or (_partner(last.frame, made.site, target) if last.frame is not None else ())
        return Origin(made.site, tensors, made.call, made.op, True, partners, made.dropped)
    if last.site is None or last.frame is None:
        return Origin(None, tensors)
    moved = _moved_in_forward(last.frame, last.site, tensors[-1].device)
    if moved is not None:
        return Origin(moved.site, tensors, moved.call, moved.method, True)
    call, op, direct = _call_of(last.frame, last.site) if not last.is_item else ("", "", False)
    return Origin(last.site, tensors, call, op, direct, _partner(last.frame, last.site, target))


def _moved_in_forward(frame: FrameType, site: Site, device: torch.device) -> MoveInForward | None:
    """The move that `forward` made of what a hand-written `backward` reads: `(mask,) = ctx.saved_tensors`."""
    value = _value(site.text, site.line)
    left = value is not None and is_from_context(ast.unparse(value), frame.f_code)
    return move_in_forward(frame.f_code, device) if left else None


def _assignment(
    frames: Sequence[FrameType], tensor: torch.Tensor, home: FrameType | None, before: int, aspect: Aspect
) -> tuple[FrameType, Site, Keys] | None:
    """The frame and line that gave a tensor its name, and what of the name it is. In `home` only lines above `before` count."""
    for frame in frames:
        name, keys = path_of(name_in(frame, lambda value: value is tensor))
        if name in ("", "self"):  # what `self` keeps is found through the model
            continue
        code, above = frame.f_code, before if frame is home else frame.f_lineno
        filled = _find_filling(frames, frame, name, keys, above)
        if filled is not None:
            return frame, *filled
        site = _last_assignment(frames, frame, name, above)
        if site is None and name in frame.f_globals:
            site = statements.cell_assignment(name)
        for each in (site, _of_last_turn(frame, name, above)):
            own = each is not None and (name not in code.co_varnames or each.function == code.co_name)  # no argument's namesake
            if each is not None and own and not _denied(frames, frame, each, keys_of(each, name) + keys, tensor, aspect):
                return frame, each, keys_of(each, name) + keys
    return None


def _find_filling(
    frames: Sequence[FrameType], frame: FrameType, name: str, keys: Keys, before: int
) -> tuple[Site, Keys] | None:
    """The last line above another that put an item into what a variable holds: `state['speed'] = torch.zeros(3)`."""
    here = Site(frame.f_code.co_filename, before, "", frame.f_code.co_name)
    scope = _scope(frames, frame, here) if keys else None
    change = change_of(scope, name, keys, before, moves=False) if isinstance(scope, PastCall) else None
    inside = change is not None and change.value is not None and change.scope is scope and len(change.keys) < len(keys)
    return (change.site, change.keys) if change is not None and inside else None


def _last_assignment(frames: Sequence[FrameType], frame: FrameType, name: str, before: int) -> Site | None:
    """The last line above another that can have run and assigns a variable."""
    file = frame.f_code.co_filename
    site = statements.assignment(file, name, before)
    here = Site(file, before, "", frame.f_code.co_name)
    scope = _scope(frames, frame, here) if site is not None and site.function == frame.f_code.co_name else None
    if not isinstance(scope, PastCall):
        at_top = site is not None and site.function == frame.f_code.co_name == "<module>"
        return _at_top_level(frame, name, site, before) if site is not None and at_top else site
    found = scope.find_assignment(name, before)
    return scope.site(found) if found is not None else None


def _at_top_level(frame: FrameType, name: str, site: Site, before: int) -> Site:
    """The line itself, or the last one above of a branch that can have run."""
    top = top_level(frame)
    above = top.site_of_line(site.file, before).line if top is not None else 0
    line = top.site_of_line(site.file, site.line).line if top is not None else 0
    if top is None or any(each.lineno == line for each in top.ran_above(above)):
        return site
    found = top.find_assignment(name, above)
    return top.shown(top.site(found)) if found is not None else site


def _of_last_turn(frame: FrameType, name: str, line: int) -> Site | None:
    """The last line that assigns a variable further down in a loop around a line, which ran in the turn before."""
    file = frame.f_code.co_filename
    tree = definition_of(frame.f_code) or parsed("".join(linecache.getlines(file)), deep=True)
    loops = [each for each in ast.walk(tree) if isinstance(each, ast.For | ast.While)] if tree is not None else []
    ends = [each.end_lineno or 0 for each in loops if each.lineno < line <= (each.end_lineno or 0)]
    site = statements.assignment(file, name, max(ends) + 1) if ends else None
    return site if site is not None and site.line >= line else None


def _denied(
    frames: Sequence[FrameType], frame: FrameType, site: Site, keys: Keys, tensor: torch.Tensor, aspect: Aspect
) -> bool:
    """Whether what the line says gives another device than the tensor has: it is in a branch or a turn that did not run."""
    value = _value(site.text, site.line)
    found = makers(value, _scope(frames, frame, site), site, keys, aspect) if value is not None else []
    return bool(found) and all(isinstance(each, Maker) and not each.decides(tensor, aspect) for each in found)


def _find_given(frames: Sequence[FrameType], home: FrameType, site: Site) -> list[torch.Tensor]:
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


def _parents(frame: FrameType, site: Site, tensor: torch.Tensor, aspect: Aspect) -> list[torch.Tensor] | None:
    """What a value was computed from; None for an activation, which is where it is because of its layer's weights."""
    value, scope = _value(site.text), Scope(frame)
    found = [] if value is None else list(scope.leaves(value))
    called = value is not None and any(isinstance(n, ast.Call) and is_module(scope.value(n.func)) for n in ast.walk(value))
    weights = [t for t in found if is_parameter(t) and _is_alike(t, tensor, aspect)]
    return None if weights and (called or len(weights) < len(found)) else found


def _call_of(frame: FrameType, site: Site) -> tuple[str, str, bool]:
    call, op = statements.assigned_call(site.text)
    if not call:
        return "", "", False
    node = parsed_expression(call)
    func = Scope(frame).value(node.func) if isinstance(node, ast.Call) else UNKNOWN
    direct = origin_of(func).startswith("torch") or func is getattr(torch, op, None)
    return call, op, direct


def _partner(frame: FrameType, site: Site, target: torch.device) -> tuple[str, ...]:
    """Tensors on the right device that the function has before that line, its arguments first."""
    code, variables = frame.f_code, locals_of(frame)
    if site.function != code.co_name or site.function == "<module>":
        return ()
    given = code.co_varnames[: code.co_argcount]
    looped = _loop_variables(frame, site)
    earlier = [n for n in variables if n not in given and (n in looped or _assigned_above(frame, n, site))]
    names = [*given, *earlier]
    return tuple(n for n in names if is_tensor(t := variables.get(n)) and t.device == target)


def _loop_variables(frame: FrameType, site: Site) -> set[str]:
    """The variables of the loops around a line."""
    node = definition_of(frame.f_code)
    loops = [each for each in ast.walk(node) if isinstance(each, ast.For)] if node is not None else []
    around = [each for each in loops if each.lineno < site.line <= (each.end_lineno or 0)]
    return {part.id for each in around for part in ast.walk(each.target) if isinstance(part, ast.Name)}


def _assigned_above(frame: FrameType, name: str, site: Site) -> bool:
    found = statements.assignment(frame.f_code.co_filename, name, site.line)
    return found is not None and found.function == site.function


def _is_empty(value: ast.expr) -> bool:
    """`parts = []`: what is in it now came later."""
    elements = value.elts if isinstance(value, ast.List) else value.keys if isinstance(value, ast.Dict) else [value]
    return not elements


def _value(statement: str, line: int = 1) -> ast.expr | None:
    node = parsed_statement(statement, line)
    return node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
