"""Names of a tensor in the user's code, its owner, and the line that put it where it is."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture.faults.owners import holder, in_module_beside, module_at, registered_at, written_later
from devwidget.capture.object_fields import copy_items, dict_of, format_value, is_among
from devwidget.capture.recording.births import Birth
from devwidget.capture.recording.event_log import device_id, format_dtype, operand_of
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code import classes, statements
from devwidget.capture.source_code.arguments import variables_taken, where_given
from devwidget.capture.source_code.call_sites import RawSite, call_text, line_of, raw_site, to_site
from devwidget.capture.source_code.classes import functions_of
from devwidget.capture.source_code.expressions import Scope, means
from devwidget.capture.source_code.frames import deep_tensors, name_in, path_of
from devwidget.capture.source_code.provenance import Aspect, Origin, find_append, find_origin, find_replacements, only
from devwidget.capture.source_code.source_files import is_outdated
from devwidget.capture.source_code.stack import first_argument, frames_at_work, locals_of, user_frames
from devwidget.capture.source_code.written_moves import (
    DiscardedMove,
    find_discarded_move,
    find_forgetful_move,
    find_module_moves,
)
from devwidget.capture.tensors import (
    DEVICE,
    is_module,
    is_parameter,
    is_tensor,
    own,
    own_tensors,
    tensors_in,
    viewed_base,
    wrapped_tensor,
)
from devwidget.records.site import Site
from devwidget.records.syntax import arguments_in, names_in, nodes_in, parsed_expression, parsed_statement
from devwidget.records.trace import Held, Operand, Promotion, Taken


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


def find_story(asked: Asked) -> dict[str, Any]:
    """Return the fields of an operand that say who owns it and which line decided its device or dtype."""
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
        if asked.aspect == "dtype":
            promotion = _promotion_at(root)
    if held is not None and asked.aspect == "device":
        origin, held = _moved_away(asked, origin, held)
    computed = birth is not None and root is not birth
    return origin.list_fields() | {"held": held, "promotion": promotion, "computed": computed}


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
    module = module_at(asked.state.tracker, held.left_behind)
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
    calls = nodes_in(node, ast.Call)
    has_place_of_its_own = any(not _tensors_named(part, scope) for part in [node, *calls])  # `torch.randn(3)`
    if has_place_of_its_own or not all(is_among(tensor, registered) for tensor in _tensors_named(node, scope)):
        return None
    return root.weights


def _tensors_named(node: ast.AST, scope: Scope) -> list[torch.Tensor]:
    named = [scope.value(part) for part in nodes_in(node, ast.Name, ast.Attribute)]
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
    if held.left_behind is None or built is None:
        return held
    if statements.assigned_call(built.text)[1] != held.left_class:  # a module around it
        return held
    return dataclasses.replace(held, built=built)


def _find_partners(asked: Asked, root: Birth, code: CodeType) -> Iterator[str]:
    """Yield tensors on the right device among the arguments, variables and module of the creating function."""

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
        return Origin(_find_registration(asked, held) or found.site), held
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


def _find_registration(asked: Asked, held: Held) -> Site | None:
    """Return the line that gave a module its parameter or buffer, or the line that gave the model this module."""
    tracker, path = asked.state.tracker, held.module or ""
    own_line = written_later(tracker, held) or held.assigned
    replaced = find_replacements(asked.frames, path.rpartition(".")[2])
    if own_line is None and replaced:
        return only(replaced)
    return own_line or registered_at(tracker, path)


def _find_deciding_line(asked: Asked, held: Held) -> Site | None:
    """Return the line that decides where an owned tensor is; None if several methods of the owner's class set it."""
    module = module_at(asked.state.tracker, held.module)
    if module is None or held.how != "attribute" or held.note:
        return held.assigned
    return classes.deciding_assignment(type(module), held.name)


def _find_origin(asked: Asked) -> Origin:
    """Return the origin of the first named tensor among a tensor and those that it was computed from."""
    for each in asked.family:
        if getattr(each, asked.aspect) == getattr(asked.family[0], asked.aspect):
            found = find_origin(asked.frames, each, asked.target, asked.aspect, asked.state.given)
            if found.site is not None:
                return found
    return Origin(None)


def _find_line_of_object(asked: Asked) -> Site | None:
    """Return the line of a class that stores a tensor of an object outside of the model, such as a loss, a hook or an
    average."""
    for frame in asked.frames:
        owner = first_argument(frame)
        if owner is None or (is_module(owner) and asked.state.tracker.path_of(owner) is not None):
            continue
        registered = own_tensors(owner).items() if is_module(owner) else ()
        for name, value in (*registered, *copy_items(dict_of(owner))):
            if type(name) is str and any(is_among(tensor, asked.family) for tensor in tensors_in(value, depth=2)):
                return classes.find_filling(type(owner), name)
    return None


# Names in the user's code.


class Names:
    """Names as seen from one failing frame. Keeps the frame only while the fault is described."""

    def __init__(self, state: RecordingState, frame: FrameType) -> None:
        self._state = state
        self._site = raw_site(frame)
        self._frames = list(user_frames(frame))
        self._frame = next(iter(self._frames), None)
        self._at_work = list(frames_at_work(frame))
        self._read = frozenset(names_in(parsed_expression(call_text(self._site))))

    def expression(self, tensor: object) -> str:
        """Return how the failing frame's code can write this tensor; "" if it has no name there."""
        if self._frame is not None:
            return name_in(self._frame, tensor, self._read)
        return ""

    def model_name(self) -> str:
        """Return the variable that holds the root module."""
        if self._state.tracker.model_name:
            return self._state.tracker.model_name
        roots = [ref() for ref in self._state.tracker.roots]
        for frame in self._frames:
            for name, value in locals_of(frame).items():
                is_of_user = name != "self" and not name.startswith("_")
                if is_of_user and value is not None and is_among(value, roots):
                    return str(name)
        return ""

    def describe_stray(
        self,
        tensor: torch.Tensor,
        argument: str,
        expression: str,
        target: torch.device,
        aspect: Aspect = "device",
        **fields: Any,
    ) -> Operand:
        """Describe a misplaced tensor, with its owner and the line that decided its device or dtype."""
        fields |= self.find_story(tensor, target, aspect)
        return operand_of(tensor, argument, expression, stray=True, **fields)

    def find_story(self, tensor: torch.Tensor, target: torch.device, aspect: Aspect = "device") -> dict[str, Any]:
        """Return the fields of an operand that say how a tensor came to its device or dtype."""
        family = list_family(tensor, self._state.births.find_birth(tensor))
        fields = find_story(Asked(self._state, self._frames, tensor, family, target, aspect))
        discarded = self._find_discarded_move(family)
        if aspect == "device":
            fields["given"] = where_given(self._at_work, family, target)
        return fields | {
            "ineffective": discarded.site,
            "ineffective_method": discarded.method,
            "listed": find_append(self._frames, tensor),
            "forgotten": find_forgetful_move(self._frames, tensor, target),
            "field": self._find_field(family),
        }

    def _find_field(self, family: list[torch.Tensor]) -> str:
        """Return `batch` or `target` of a traced step if one of these tensors is part of it."""
        fields = self._state.given
        for tensor in family:
            if tensor in fields:
                return str(fields[tensor])
        return ""

    def beside_the_model(self, operand: Operand, target: torch.device) -> Operand:
        """Return the operand. For an unregistered tensor of a module, add where the registered ones are and which line moved
        them.
        """
        held = operand.held
        if held is None or held.how not in ("attribute", "class attribute"):
            return operand
        devices, of_owner, moves = set(), set(), set()
        for path, module in self._state.tracker.list_modules():
            found = {device_id(tensor.device) for tensor in own_tensors(module).values()}
            devices |= found
            if not held.module or f"{path}.".startswith(f"{held.module}."):
                of_owner |= found
            moves |= {self._move_of(tensor) for tensor in own_tensors(module).values() if tensor.device == target}
        went = None
        if len(moves) == 1:  # else parts were moved, one by one
            went = moves.pop()
        is_split = len(of_owner) > 1 and not self._is_dispatched()
        there = dataclasses.replace(held, model_devices=tuple(sorted(devices)), went=went, is_split=is_split)
        return dataclasses.replace(operand, held=there)

    def _is_dispatched(self) -> bool:
        """Return whether accelerate placed a module by a device map, and the buffers with it."""
        return any("hf_device_map" in own(module) for _, module in self._state.tracker.list_modules())

    def _move_of(self, tensor: torch.Tensor) -> Site | None:
        root = self._state.births.find_root(tensor)
        if root is not None and root.is_move:
            return to_site(root.site)
        return None

    def variables_taken(self, tensor: torch.Tensor, target: torch.device) -> Taken | None:
        """Return the variables of the outermost function that has a misplaced tensor."""
        family = list_family(tensor, self._state.births.find_birth(tensor))
        return variables_taken(self._at_work, family, target)

    def containers_of(self, operands: Sequence[Operand]) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
        """Return the tuples whose items are operands, with their lengths, and the lists."""
        tuples, lists = dict[str, int](), []
        for name in dict.fromkeys(name for operand in operands for name in _containers_in(operand.expression)):
            value = self._value_of(name)
            if type(value) is tuple:
                tuples[name] = len(value)
            elif type(value) is list:
                lists.append(name)
        return tuple(tuples.items()), tuple(lists)

    def tensors_at_hand(self, text: str, target: torch.device) -> tuple[str, ...]:
        """Return the variables of the failing line on the right device, then such arguments of its function."""
        names = names_in(parsed_expression(text))
        if self._frame is not None:
            code = self._frame.f_code
            names = [*names, *code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]
        found = []
        for name in dict.fromkeys(names):
            value = self._value_of(name)
            if is_tensor(value) and value.device == target:
                found.append(name)
        return tuple(found)

    def others_of_module(self, operands: Sequence[Operand]) -> tuple[str, ...]:
        """Return the variables of the failing statement that are tensors of the misplaced module, or views of them."""
        left_behind = [each for each in operands if getattr(each.held, "left_behind", None)]
        stray, site = next((each for each in left_behind if each.stray), None), to_site(self._site)
        if stray is None or stray.held is None or site is None:
            return ()
        statement, module = parsed_statement(site.text), module_at(self._state.tracker, stray.held.module)
        if statement is None or module is None:
            return ()
        own, found = list(own_tensors(module).values()), []
        for name in dict.fromkeys(names_in(statement)):
            value = self._value_of(name)
            if not is_tensor(value) or device_id(value.device) != stray.device or name == stray.expression:
                continue
            if any(is_among(each, own) for each in (value, *viewed_base(value))):
                found.append(name)
        return tuple(found)

    def _value_of(self, place: str) -> Any:
        node = parsed_expression(place)
        if self._frame is None or node is None:
            return None
        return Scope(self._frame).value(node)

    def _find_discarded_move(self, family: list[torch.Tensor]) -> DiscardedMove:
        """Return the line that asked to move one of these tensors, or an object that holds it, and dropped the result."""
        for tensor in family:
            attempt = self._state.attempts.find_birth(tensor)
            if attempt is not None:
                for asked in _askers(attempt):
                    site = statements.discarded_move(asked.code.co_filename, line_of(asked))
                    if site is not None:
                        return DiscardedMove(site)
            for frame in self._frames:
                found = find_discarded_move(frame, name_in(frame, tensor))
                if found.site is not None:
                    return found
        return DiscardedMove()

    def device_argument(self, requested: Any) -> tuple[str, Site | None]:
        """Return the expression that named a device in the failing call, and the line that gave it its value."""
        here, call = to_site(self._site), parsed_expression(call_text(self._site))
        for node in arguments_in(call):
            match node:
                case ast.Constant(value=value) if _is_requested(value, requested):
                    return ast.unparse(node), here
                case ast.Name(id=name) if _is_requested(self._value_of(name), requested):
                    given = self._assigned(name)
                    return name, statements.returned_by(given) or given or here
        return "", here

    def argument_of(self, value: Any) -> tuple[str, Site | None]:
        """Return the variable that holds an argument of the failing call, and the line that assigned it."""
        name = self.expression(value)
        return name, self._assigned(path_of(name)[0])

    def _assigned(self, name: str) -> Site | None:
        frame = self._frame
        if frame is None or not name:
            return None
        return statements.assignment(frame.f_code.co_filename, name, frame.f_lineno)


def _containers_in(place: str) -> Iterator[str]:
    """Yield the variable of `self.hidden[0]` and `state[0][1]`, and what the last item is in."""
    yield path_of(place)[0]
    node = parsed_expression(place)
    if isinstance(node, ast.Subscript):
        yield ast.unparse(node.value)


def _askers(attempt: Birth) -> Iterator[RawSite]:
    """Yield the line that moved a tensor, and lines that asked an object to move but dropped the moved tensor."""
    if attempt.site is not None:
        yield attempt.site
    if attempt() is None:
        yield from attempt.asked


def _is_requested(value: Any, requested: Any) -> bool:
    known = type(value) is str or type(value) is int or type(value) is DEVICE
    return value is requested or (known and str(value) == format_value(requested))
