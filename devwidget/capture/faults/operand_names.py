"""Names: how the user's code calls a tensor, who keeps it, and which line put it where it is."""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture.faults.made_by import made_by
from devwidget.capture.faults.owners import holder, in_class, in_module_beside, in_optimizer, registered_at, written_later
from devwidget.capture.modules import is_module, own_tensors, walk_modules
from devwidget.capture.object_fields import copy_items, dict_of, format_value
from devwidget.capture.recording.births import Birth
from devwidget.capture.recording.event_log import device_id, format_dtype
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code import classes, provenance, statements
from devwidget.capture.source_code.call_sites import (
    RawSite,
    call_text,
    line_of,
    locals_of,
    raw_site,
    to_site,
)
from devwidget.capture.source_code.classes import functions_of
from devwidget.capture.source_code.expressions import Scope
from devwidget.capture.source_code.frames import deep_tensors, frames_at_work, lookup, name_in, user_frames
from devwidget.capture.source_code.past.attribute_makers import attribute_makers
from devwidget.capture.source_code.past.decisions import Aspect, Maker
from devwidget.capture.source_code.past.given_arguments import where_given
from devwidget.capture.source_code.past.histories import decisions, path_text
from devwidget.capture.source_code.past.loop_variables import variables_taken
from devwidget.capture.source_code.value_paths import path_of
from devwidget.capture.tensors import DEVICE, is_parameter, is_tensor, tensors_in, viewed_base, wrapped_tensor
from devwidget.records.site import Site
from devwidget.records.syntax import parsed_expression
from devwidget.records.trace import Held, Operand, Promotion, Taken


class Names:
    """Names as seen from one failing frame; keeps the frame no longer than the fault takes to describe."""

    def __init__(self, state: RecordingState, frame: FrameType) -> None:
        self._state = state
        self._site = raw_site(frame)
        self._frames = list(user_frames(frame))
        self._frame = next(iter(self._frames), None)
        self._at_work = list(frames_at_work(frame))

    def expression(self, tensor: object) -> str:
        """How the failing frame's code can write this tensor; "" if it has no name there."""
        return name_in(self._frame, lambda value: value is tensor) if self._frame is not None else ""

    def alike(self, text: str, tensor: torch.Tensor) -> str:
        """The one argument of a call that is like a tensor, from which a library has sorted or copied it; "" without one."""
        node, scope = parsed_expression(text), Scope(self._frame) if self._frame is not None else None
        if not isinstance(node, ast.Call) or scope is None:
            return ""
        given = [(part, scope.value(part)) for part in (*node.args, *(keyword.value for keyword in node.keywords))]
        kind = (tensor.shape, tensor.dtype, tensor.device)
        same = {
            ast.unparse(part) for part, value in given if is_tensor(value) and (value.shape, value.dtype, value.device) == kind
        }
        return same.pop() if len(same) == 1 else ""

    def model_name(self) -> str:
        """The variable that holds the root module."""
        if self._state.tracker.model_name:
            return self._state.tracker.model_name
        roots = [root for ref in self._state.tracker.roots if (root := ref()) is not None]
        for frame in self._frames:
            for name, value in locals_of(frame).items():
                if name != "self" and not name.startswith("_") and any(value is root for root in roots):
                    return str(name)
        return ""

    def with_birth(self, operand: Operand, tensor: torch.Tensor, target: torch.device, *, of_dtype: bool = False) -> Operand:
        """The operand with the line that decided its device, or its dtype, and who keeps it."""
        birth = self._state.births.find_birth(tensor)
        family = [t for b in birth.iterate_chain() if (t := b()) is not None] if birth else [tensor, *viewed_base(tensor)]
        family += [] if (wrapped := wrapped_tensor(tensor)) is None or any(wrapped is t for t in family) else [wrapped]
        for each in (*viewed_base(tensor), tensor):  # of `self.weight.T` too
            if is_parameter(each) and not any(member is each for member in family):
                family.insert(0, each)  # `nn.Parameter(data)` has the birth of its data, which somebody else may keep
        given = None if of_dtype else where_given(self._at_work, family or [tensor], target)
        given_as = self._state.given
        field = next((given_as[member] for member in family or [tensor] if member in given_as), "")
        operand = dataclasses.replace(operand, ineffective=self._ineffective(family or [tensor]), given=given, field=field)
        root = None if birth is None else birth.dtype_root() if of_dtype else left_behind(birth) or birth.find_root()
        if of_dtype and root is not None and not root.is_move:
            root = self._cast_of_module(tensor.dtype) or root
        if of_dtype and (root is None or not root.is_move) and (cast := self._past_cast(tensor.dtype)) is not None:
            held = holder(self._state.tracker, self._frames, family or [tensor])
            return made_by(dataclasses.replace(operand, held=held, from_move=True), [cast], target)
        state = in_optimizer(self._frames, family)
        giver = _follows(root, tensor.device, target) if root is not None and not of_dtype and state is None else None
        weights = self._weights_of(root) if root is not None and giver is None and not of_dtype else None
        if giver is not None:
            root, family = giver, [member for member in (giver(),) if member is not None]
        elif weights is not None:
            root, family = left_behind(weights) or weights.find_root(), [w for w in (weights(),) if w is not None]
        if root is None or root.site is None:
            return self._by_source(operand, tensor, family, target, of_dtype=of_dtype)
        left_out = next(iter(root.asked), None) if not root.is_move and not of_dtype else None
        site = left_out or root.site
        partners = tuple(self._partners(root, site, target))
        before = root.parent if of_dtype and not root.is_move else None
        promotion = (
            Promotion(to_site(root.site), root.call, format_dtype(before.dtype)) if before is not None and root.call else None
        )
        return dataclasses.replace(
            operand,
            held=holder(self._state.tracker, self._frames, family or [tensor])
            or self._of_weights(root, tensor)
            or in_module_beside(self._frames, family),
            birth=to_site(site),
            birth_call=call_text(site),
            birth_op=root.call if left_out is None else "",
            birth_direct=root.direct and left_out is None,
            birth_partner=next((name for name in partners if name.isidentifier()), ""),
            birth_partners=partners,
            from_move=root.is_move,
            promotion=promotion,
        )

    def beside_the_model(self, operand: Operand, target: torch.device) -> Operand:
        """The operand; of one that a module keeps unregistered, where the registered ones are, and which line moved them."""
        held, tracker = operand.held, self._state.tracker
        if held is None or held.how not in ("attribute", "class attribute"):
            return operand
        found = [(path, name, t) for path, module in tracker.list_modules() for name, t in own_tensors(module).items()]
        devices = tuple(sorted({device_id(tensor.device) for _, _, tensor in found}))
        there = [each for each in found if each[2].device == target]
        there.sort(key=lambda each: each[0] != held.module)
        went = self._went(*there[0]) if there else None
        if went is not None and self._went(*there[-1]) != went:  # parts were moved, one by one
            went = None
        return dataclasses.replace(operand, held=dataclasses.replace(held, model_devices=devices, went=went))

    def _went(self, path: str, name: str, tensor: torch.Tensor) -> Site | None:
        """The line that moved a registered tensor to where it is."""
        birth = self._state.births.find_birth(tensor)
        root = birth.find_root() if birth is not None else None
        if root is not None and root.site is not None:
            return to_site(root.site) if root.is_move else None
        past = self._decisions(Held(path, name, "parameter"), tensor, "device")
        return past[0].site if past and past[0].is_move else None

    def _of_weights(self, root: Birth, tensor: torch.Tensor) -> Held | None:
        """The unregistered module whose weights an activation was computed with: those are why it is there."""
        weights = root.weights() if root.weights is not None else None
        if weights is None or weights.device != tensor.device:
            return None
        held = holder(self._state.tracker, [], [weights])
        return held if held is not None and held.how == "attribute" else None

    def _weights_of(self, root: Birth) -> Birth | None:
        """The parameter that decided where a value of the failing function is, computed of what its module registers alone."""
        frame, module = self._frame, self._state.tracker.running
        code = root.site.code if root.site is not None else None
        node = parsed_expression(call_text(root.site)) if root.weights is not None and root.site is not None else None
        if frame is None or module is None or node is None or frame.f_code is not code:
            return None
        scope, registered = Scope(frame), list(own_tensors(module).values())

        def given(part: ast.AST) -> list[torch.Tensor]:
            named = (scope.value(each) for each in ast.walk(part) if isinstance(each, ast.Name | ast.Attribute))
            return [value for value in named if is_tensor(value)]

        calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
        alone = all(any(value is each for each in registered) for value in given(node))
        return root.weights if alone and all(map(given, [node, *calls])) else None  # `torch.randn(3)` has a place of its own

    def _cast_of_module(self, dtype: torch.dtype) -> Birth | None:
        """The line that gave the running module this dtype, which all that it computes has from it."""
        module = self._state.tracker.running
        for tensor in own_tensors(module).values() if module is not None else ():
            birth = self._state.births.find_birth(tensor) if tensor.dtype == dtype else None
            if birth is not None and birth.dtype_root().is_move:
                return birth.dtype_root()
        return None

    def _past_cast(self, dtype: torch.dtype) -> Maker | None:
        """The cast that gave the running module this dtype in a function that has returned."""
        tracker = self._state.tracker
        inside = walk_modules(tracker.running) if tracker.running is not None else ()
        for module, name, tensor in ((m, *each) for _, m in inside for each in own_tensors(m).items()):
            birth = self._state.births.find_birth(tensor)
            if tensor.dtype == dtype and (birth is None or birth.dtype_root().site is None):
                held = Held(tracker.path_of(module), name, "parameter", "")
                return next((made for made in self._decisions(held, tensor, "dtype") if made.is_move), None)
        return None

    def _by_source(
        self, operand: Operand, tensor: torch.Tensor, family: list[torch.Tensor], target: torch.device, *, of_dtype: bool
    ) -> Operand:
        """The story of a tensor that is older than the recording, as the source tells it."""
        aspect: Aspect = "dtype" if of_dtype else "device"
        found = self._origin(tensor, family, target, aspect)
        held = holder(self._state.tracker, self._frames, [*family, *found.tensors])
        if held is not None and self._is_followed(held, found):
            held = None
        past = self._decisions(held, tensor, aspect) if held is not None else []
        if held is not None and past:
            kept = dataclasses.replace(operand, held=held, birth=past[0].site)
            return kept if held.how in ("parameter", "buffer") else made_by(kept, past, target)
        handed_on = found.site is None or not found.call  # `model = parts["model"]` has only handed on what holds it
        if held is not None and (handed_on or held.how in ("parameter", "buffer")):
            tracker = self._state.tracker
            birth = written_later(tracker, held) or held.assigned or registered_at(tracker, held.module or "") or found.site
            kept = dataclasses.replace(operand, held=held, birth=birth)
            return kept if held.how in ("parameter", "buffer") else self._put_there(kept, held, tensor, target)
        if held is None and found.site is None:
            return self._of_object(operand, [tensor, *family], target)
        return dataclasses.replace(
            operand,
            held=held,
            birth=found.site,
            birth_call=found.call,
            birth_op=found.op,
            birth_direct=found.direct,
            birth_partner="" if of_dtype else next(iter(found.partners), ""),
            birth_partners=() if of_dtype else found.partners,
            from_move=found.op in statements.MOVES,
            ineffective=operand.ineffective or found.dropped,
        )

    def _is_followed(self, held: Held, found: provenance.Origin) -> bool:
        """Whether what a module keeps was moved to where another tensor is, which a line that still runs has made."""
        alone = held.how in ("parameter", "buffer") and held.left_behind is None
        return alone and found.direct and holder(self._state.tracker, [], list(found.tensors[-1:])) is None

    def _origin(
        self, tensor: torch.Tensor, family: list[torch.Tensor], target: torch.device, aspect: Aspect
    ) -> provenance.Origin:
        """The first of a tensor and those it was computed from that has a name."""
        found = provenance.origin(self._frames, tensor, target, aspect)
        for older in family if found.site is None else ():
            if older is not tensor and getattr(older, aspect) == getattr(tensor, aspect):
                found = provenance.origin(self._frames, older, target, aspect)
                if found.site is not None:
                    return found
        return found

    def _decisions(self, held: Held, tensor: torch.Tensor, aspect: Aspect) -> list[Maker]:
        """What decided about a tensor that a module of the model keeps, in functions that have returned."""
        roots = [root for ref in self._state.tracker.roots if (root := ref()) is not None]
        if held.module is None or len(roots) != 1:
            return []
        paths = [f"{held.module}.{held.name}".strip("."), *held.shared]
        return decisions(self._frames, roots[0], paths, tensor, aspect, moves=held.how in ("parameter", "buffer"))

    def _of_object(self, operand: Operand, family: list[torch.Tensor], target: torch.device) -> Operand:
        """What an object beside the model keeps, such as a loss, a hook or an average: the line of its class that stores it."""
        for frame in self._frames:
            code = frame.f_code
            owner = locals_of(frame).get(code.co_varnames[0]) if code.co_argcount else None
            for name, value in self._kept_beside_the_model(owner):
                kept = [t for t in tensors_in(value, depth=2) if any(t is each for each in family)]
                if type(name) is str and kept:
                    site = in_class(type(owner), functools.partial(classes.attribute_assignment, attribute=name))
                    made = attribute_makers(owner, name, kept[0].device)
                    return made_by(dataclasses.replace(operand, birth=site), made, target)
        return operand

    def _kept_beside_the_model(self, owner: object) -> list[tuple[object, object]]:
        """What an object keeps that is no module of the model."""
        if is_module(owner):
            return (
                [*own_tensors(owner).items(), *copy_items(dict_of(owner))] if self._state.tracker.path_of(owner) is None else []
            )
        return list(copy_items(dict_of(owner))) if owner is not None else []

    def _put_there(self, operand: Operand, held: Held, tensor: torch.Tensor, target: torch.device) -> Operand:
        """What a module keeps, with the call that made it, as the methods of its class tell."""
        owner = next((module for path, module in self._state.tracker.list_modules() if path == held.module), None)
        return made_by(operand, attribute_makers(owner, held.name, tensor.device), target) if owner is not None else operand

    def variables_taken(self, tensor: torch.Tensor, target: torch.device) -> Taken | None:
        """The variables of the outermost function that has a stray."""
        birth = self._state.births.find_birth(tensor)
        older = [t for b in birth.iterate_chain() if (t := b()) is not None] if birth is not None else []
        return variables_taken(self._at_work, [tensor, *older], target)

    def line_details(self, text: str, operands: Sequence[Operand], target: torch.device) -> dict[str, Any]:
        """Tuples that operands are items of, and variables of the failing line that are on the right device."""
        frame = self._frame
        if frame is None:
            return {}
        tuples = {name: len(value) for o in operands if (name := path_of(o.expression)[0])
                  if type(value := lookup(frame, name)) is tuple}  # fmt: skip
        node = parsed_expression(text)
        named = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)] if node is not None else []
        there = [name for name in named if is_tensor(value := lookup(frame, name)) and value.device == target]
        return {"tuples": tuple(tuples.items()), "at_hand": tuple(there)}

    def _ineffective(self, family: list[torch.Tensor]) -> Site | None:
        """The line that asked to move one of these tensors and dropped the result."""
        for tensor in family:
            attempt = self._state.attempts.find_birth(tensor)
            for asked in _askers(attempt) if attempt is not None else ():
                site = statements.discarded_move(asked.code.co_filename, line_of(asked))
                if site is not None:
                    return site
            for frame in self._frames:
                name = name_in(frame, lambda value, tensor=tensor: value is tensor)
                site = _asked_in_vain(frame, name) if name else None
                if site is not None:
                    return site
        return None

    def device_argument(self, requested: Any) -> tuple[str, Site | None]:
        """The expression that named a device in the failing call, and the line that gave it its value."""
        if self._frame is None:
            return "", None
        here = to_site(self._site)
        for node in _argument_nodes(call_text(self._site)):
            text = ast.unparse(node)
            if isinstance(node, ast.Constant) and _is_requested(node.value, requested):
                return text, here
            if isinstance(node, ast.Name) and _is_requested(lookup(self._frame, node.id), requested):
                given = self._assigned(node.id)
                return text, statements.returned_by(given) or given or here
        return "", here

    def argument_of(self, value: Any) -> tuple[str, Site | None]:
        """The variable that holds an argument of the failing call, and the line that assigned it."""
        if self._frame is None:
            return "", None
        name = name_in(self._frame, lambda other: other is value) or path_text(self._frame, value)
        return name, self._assigned(path_of(name)[0]) if name else None

    def made_by_call(self, value: Any, factory: str) -> Site | None:
        """The line that made an object which is no tensor: where the file calls its factory and assigns the result."""
        _, site = self.argument_of(value)
        if site is not None or self._frame is None:
            return site
        return statements.made_by(self._frame.f_code.co_filename, factory)

    def _assigned(self, name: str) -> Site | None:
        frame = self._frame
        if frame is None:
            return None
        return statements.assignment(frame.f_code.co_filename, name, frame.f_lineno)

    def _partners(self, root: Birth, site: RawSite, target: torch.device) -> Iterator[str]:
        """Tensors on the right device that the birth's own function has at hand: its arguments, its variables, its module's."""
        code = site.code
        frame = next((f for f in self._frames if f.f_code is code), None)
        locals_ = locals_of(frame) if frame is not None else {}
        for name in [*code.co_varnames[: code.co_argcount], *locals_]:
            value = locals_.get(name)
            if is_tensor(value) and value.device == target and _known_before(self._state, value, root):
                yield str(name)
        owner = locals_.get("self") if frame is not None else _module_of(self._state, code)
        if is_module(owner) and code.co_name not in classes.INITIALISERS:
            there = ((path, each) for path, each in deep_tensors(owner) if each.device == target)
            yield from (f"self{path}" for path, each in there if _known_before(self._state, each, root))


def _follows(root: Birth, device: torch.device, target: torch.device) -> Birth | None:
    """What `device=labels.device` followed to the wrong place. Between two GPUs either may be right."""
    giver, left = root.follows, device.type == "cpu" != target.type
    return giver if giver is not None and giver.site is not None and left else None


def left_behind(birth: Birth) -> Birth | None:
    """The copy that stayed where it was when what it copies, a parameter, moved on."""
    copy = None
    for each in birth.iterate_chain():
        if copy is not None and each.moved_on:
            return copy
        copy = each if each.call == "clone" else copy
    return None


def _module_of(state: RecordingState, code: CodeType | None) -> nn.Module | None:
    """A module of the model whose class has a method with this code."""
    if code is None:
        return None
    other: set[int] = set()  # classes that have no such method; by id, because a set of types asks their metaclass
    for _, module in state.tracker.list_modules():
        if id(type(module)) not in other and any(function.__code__ is code for function in functions_of(type(module))):
            return module
        other.add(id(type(module)))
    return None


def _askers(attempt: Birth) -> Iterator[RawSite]:
    """The line that moved a tensor, and those that asked an object to move if nobody has kept what it made of this tensor."""
    if attempt.site is not None:
        yield attempt.site
    if attempt() is None:
        yield from attempt.asked


def _asked_in_vain(frame: FrameType, name: str) -> Site | None:
    """A move of a variable that was not called, or whose result was thrown away, above a frame's line."""
    file, line = frame.f_code.co_filename, frame.f_lineno
    return statements.uncalled_move(file, name, line) or statements.unkept_move(file, name, line)


def _known_before(state: RecordingState, tensor: torch.Tensor, root: Birth) -> bool:
    birth = state.births.find_birth(tensor)
    return birth is None or birth.number < root.number


def _argument_nodes(text: str) -> Iterable[ast.expr]:
    node = parsed_expression(text)
    return [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else ()


def _is_requested(value: Any, requested: Any) -> bool:
    known = type(value) is str or type(value) is int or type(value) is DEVICE
    return value is requested or (known and str(value) == format_value(requested))
