"""Find which line decided the device or dtype of a tensor, and who keeps it: from the recording, else from living frames."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType

import torch
from torch import nn

from devwidget.capture.faults.owners import holder, in_module_beside, registered_at, written_later
from devwidget.capture.modules import is_module, own_tensors
from devwidget.capture.object_fields import copy_items, dict_of, is_among
from devwidget.capture.recording.births import Birth
from devwidget.capture.recording.event_log import format_dtype
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code import classes, statements
from devwidget.capture.source_code.call_sites import RawSite, call_text, locals_of, to_site
from devwidget.capture.source_code.classes import functions_of
from devwidget.capture.source_code.expressions import Scope, means
from devwidget.capture.source_code.frames import deep_tensors
from devwidget.capture.source_code.provenance import Aspect, Origin, find_origin
from devwidget.capture.source_code.source_files import is_outdated
from devwidget.capture.source_code.written_moves import find_module_moves
from devwidget.capture.tensors import is_parameter, is_tensor, tensors_in, viewed_base, wrapped_tensor
from devwidget.records.site import Site
from devwidget.records.syntax import parsed_expression
from devwidget.records.trace import Held, Operand, Promotion


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about one tensor.

    Attributes:
        state: state of the recording.
        frames: frames of the user, innermost first.
        tensor: the misplaced tensor.
        family: the tensor and the tensors that it is a view of or was computed from.
        target: the device that it should have been on.
        aspect: what is wrong with it.
    """

    state: RecordingState
    frames: Sequence[FrameType]
    tensor: torch.Tensor
    family: list[torch.Tensor]
    target: torch.device
    aspect: Aspect


def add_story(operand: Operand, asked: Asked) -> Operand:
    """Return the operand with its owner and the line that decided its device or dtype."""
    birth = asked.state.births.find_birth(asked.tensor)
    root = promotion = None
    if birth is not None and asked.aspect == "dtype":
        root = _find_cast(asked, birth)
    elif birth is not None:
        root = left_behind(birth) or birth.find_root()
        weights = _find_weights(root, asked)
        if weights is not None:
            root, tensor = left_behind(weights) or weights.find_root(), weights()
            asked = dataclasses.replace(asked, family=asked.family if tensor is None else [tensor])
    if root is None or root.site is None or is_outdated(root.site.code):
        origin, held = _read_origin(asked)
    else:
        origin, held = _recorded_origin(asked, root, root.site), _find_holder(asked, root)
        promotion = _promotion_at(root) if asked.aspect == "dtype" else None
    if held is not None and asked.aspect == "device":
        origin, held = _moved_away(asked, origin, held)
    computed = birth is not None and root is not birth
    return dataclasses.replace(origin.add_to(operand), held=held, promotion=promotion, computed=computed)


def list_family(tensor: torch.Tensor, birth: Birth | None) -> list[torch.Tensor]:
    """Return a tensor, its view bases, and the tensors that a recording saw it computed from."""
    family = [tensor, *viewed_base(tensor)]
    if birth is not None:
        family = [older for each in birth.iterate_chain() if (older := each()) is not None] or family
    wrapped = wrapped_tensor(tensor)  # by `torch.func`
    if wrapped is not None and not is_among(wrapped, family):
        family.append(wrapped)
    for each in (*viewed_base(tensor), tensor):  # of `self.weight.T` too
        if is_parameter(each) and not is_among(each, family):
            family.insert(0, each)  # `nn.Parameter(data)` has the birth of its data, which another object may keep
    return family


def _moved_away(asked: Asked, origin: Origin, held: Held) -> tuple[Origin, Held]:
    """Return the line that took a whole module from the right device, where an earlier line had put it."""
    module = dict(asked.state.tracker.list_modules()).get(held.left_behind or "")
    if held.left_behind is None or module is None:
        return origin, held
    moves = find_module_moves(asked.frames, module)
    was_there = any(means(move.device, asked.target) for move in moves[:-1])
    if not was_there or not means(moves[-1].device, asked.tensor.device):
        return origin, held
    if not origin.is_move:
        call = statements.assigned_call(moves[-1].site.text)[0]
        origin = Origin(moves[-1].site, origin.tensors, call, is_move=True)
    return origin, dataclasses.replace(held, moved_away=True)


# As it was recorded.


def _find_cast(asked: Asked, birth: Birth) -> Birth:
    """Return the creation that decided a dtype: of the tensor, or of the running module in which it was computed."""
    root, module = birth.dtype_root(), asked.state.tracker.running
    if root.is_move or module is None:
        return root
    for tensor in own_tensors(module).values():
        known = asked.state.births.find_birth(tensor)
        if known is not None and tensor.dtype == asked.tensor.dtype and known.dtype_root().is_move:
            return known.dtype_root()
    return root


def left_behind(birth: Birth) -> Birth | None:
    """Return the copy that stayed when the parameter that it copies moved."""
    copy = None
    for each in birth.iterate_chain():
        if copy is not None and each.moved_on:
            return copy
        if each.call == "clone":
            copy = each
    return None


def _find_weights(root: Birth, asked: Asked) -> Birth | None:
    """Return the parameter that decided the device of a value that the failing function computed from registered tensors
    alone.
    """
    frame, module = next(iter(asked.frames), None), asked.state.tracker.running
    if frame is None or module is None or root.weights is None or root.site is None or frame.f_code is not root.site.code:
        return None
    node = parsed_expression(call_text(root.site))
    if node is None:
        return None
    scope, registered = Scope(frame), list(own_tensors(module).values())
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    has_place_of_its_own = any(not _tensors_named(part, scope) for part in [node, *calls])  # `torch.randn(3)`
    if has_place_of_its_own or not all(is_among(tensor, registered) for tensor in _tensors_named(node, scope)):
        return None
    return root.weights


def _tensors_named(node: ast.AST, scope: Scope) -> list[torch.Tensor]:
    named = [scope.value(part) for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute)]
    return [value for value in named if is_tensor(value)]


def _recorded_origin(asked: Asked, root: Birth, site: RawSite) -> Origin:
    left_out = next(iter(root.asked), None)
    if asked.aspect == "device" and not root.is_move and left_out is not None:
        partners = tuple(_find_partners(asked, root, left_out.code))
        return Origin(to_site(left_out), call=call_text(left_out), partners=partners)
    partners = tuple(_find_partners(asked, root, site.code))
    return Origin(to_site(site), (), call_text(site), root.call, root.direct, partners, root.is_move)


def _promotion_at(root: Birth) -> Promotion | None:
    before = root.parent
    if before is None or root.is_move or not root.call:
        return None
    return Promotion(to_site(root.site), root.call, format_dtype(before.dtype))


def _find_holder(asked: Asked, root: Birth) -> Held | None:
    """Return who keeps a tensor. For a module whose builder has returned, add the line that a recording saw building it."""
    held, built = holder(asked.state.tracker, asked.frames, asked.family), to_site(root.built)
    if held is None:
        return in_module_beside(asked.frames, asked.family)
    if held.left_behind is None or held.built is not None or built is None:
        return held
    if statements.assigned_call(built.text)[1] != held.left_class:  # a module around it
        return held
    return dataclasses.replace(held, built=built)


def _find_partners(asked: Asked, root: Birth, code: CodeType) -> Iterator[str]:
    """Yield tensors on the right device that the creating function has at hand: its arguments, variables and module."""

    def is_at_hand(value: object) -> bool:
        if not is_tensor(value) or value.device != asked.target:
            return False
        birth = asked.state.births.find_birth(value)
        return birth is None or birth.number < root.number

    frame = next((each for each in asked.frames if each.f_code is code), None)
    variables = locals_of(frame)
    for name in [*code.co_varnames[: code.co_argcount], *variables]:
        if is_at_hand(variables.get(name)):
            yield str(name)
    owner = variables.get("self") if frame is not None else _module_of(asked.state, code)
    if is_module(owner) and code.co_name not in classes.INITIALISERS:
        for path, tensor in deep_tensors(owner):
            if is_at_hand(tensor):
                yield f"self{path}"


def _module_of(state: RecordingState, code: CodeType) -> nn.Module | None:
    """Return a module of the model whose class has a method with this code."""
    other: set[int] = set()  # classes that have no such method; by id, because a set of types asks their metaclass
    for _, module in state.tracker.list_modules():
        if id(type(module)) not in other and any(function.__code__ is code for function in functions_of(type(module))):
            return module
        other.add(id(type(module)))
    return None


# As living frames tell it.


def _read_origin(asked: Asked) -> tuple[Origin, Held | None]:
    """Return the origin from the source, for a tensor that is older than the recording, and its owner."""
    found = _find_origin(asked)
    tracker = asked.state.tracker
    held = holder(tracker, asked.frames, [*asked.family, *found.tensors])
    if held is not None and held.how in ("parameter", "buffer"):
        registered = written_later(tracker, held) or held.assigned or registered_at(tracker, held.module or "")
        return Origin(registered or found.site), held
    deciding = _find_deciding_line(asked, held) if held is not None else None
    is_set_by_several = held is not None and held.assigned is not None and deciding is None
    if is_set_by_several and not found.direct:
        return Origin(None), held
    if not found.call:  # `model = parts["model"]` has only handed on what holds it
        stored = _find_line_of_object(asked) or deciding
        if stored is not None:
            call, op = statements.assigned_call(stored.text)
            return Origin(stored, (), call, op, call.startswith(f"torch.{op}(")), held
    return found, held


def _find_deciding_line(asked: Asked, held: Held) -> Site | None:
    """Return the line that decides where an owned tensor is; None if several methods of the owner's class set it."""
    module = dict(asked.state.tracker.list_modules()).get(held.module or "")
    if module is None or held.how != "attribute" or held.note:
        return held.assigned
    return classes.deciding_assignment(type(module), held.name)


def _find_origin(asked: Asked) -> Origin:
    """Return the origin of the first named tensor among a tensor and those that it was computed from."""
    for each in asked.family:
        if getattr(each, asked.aspect) == getattr(asked.family[0], asked.aspect):
            found = find_origin(asked.frames, each, asked.target, asked.aspect)
            if found.site is not None:
                return found
    return Origin(None)


def _find_line_of_object(asked: Asked) -> Site | None:
    """Return the line of a class that stores a tensor of an object outside of the model, such as a loss, a hook or an
    average."""
    for frame in asked.frames:
        code = frame.f_code
        owner = locals_of(frame).get(code.co_varnames[0]) if code.co_argcount else None
        if owner is None or (is_module(owner) and asked.state.tracker.path_of(owner) is not None):
            continue
        registered = own_tensors(owner).items() if is_module(owner) else ()
        for name, value in (*registered, *copy_items(dict_of(owner))):
            if type(name) is str and any(is_among(tensor, asked.family) for tensor in tensors_in(value, depth=2)):
                return classes.find_filling(type(owner), name)
    return None
