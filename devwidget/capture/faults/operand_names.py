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

from devwidget.capture.faults.owners import holder, in_class, in_module_beside, in_optimizer, registered_at, written_later
from devwidget.capture.modules import is_module, own_tensors
from devwidget.capture.object_fields import copy_items, dict_of, format_value
from devwidget.capture.recording.births import Birth
from devwidget.capture.recording.event_log import device_id, format_dtype
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code import classes, provenance, statements
from devwidget.capture.source_code.arguments import where_given
from devwidget.capture.source_code.call_sites import RawSite, call_text, line_of, locals_of, raw_site, to_site
from devwidget.capture.source_code.classes import functions_of
from devwidget.capture.source_code.expressions import Scope
from devwidget.capture.source_code.frames import deep_tensors, lookup, name_in, path_of
from devwidget.capture.source_code.loop_variables import variables_taken
from devwidget.capture.source_code.stack import frames_at_work, user_frames
from devwidget.capture.tensors import DEVICE, is_parameter, is_tensor, tensors_in, viewed_base, wrapped_tensor
from devwidget.records.site import Site
from devwidget.records.syntax import arguments_in, names_in, parsed_expression
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
        return name_in(self._frame, tensor) if self._frame is not None else ""

    def alike(self, text: str, tensor: torch.Tensor) -> str:
        """The one argument of a call that is like a tensor, from which a library has sorted or copied it; "" without one."""
        node, scope = parsed_expression(text), Scope(self._frame) if self._frame is not None else None
        if not isinstance(node, ast.Call) or scope is None:
            return ""
        given = [(part, scope.value(part)) for part in arguments_in(node)]
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
        family = _list_family(tensor, birth)
        operand = dataclasses.replace(operand, ineffective=self._ineffective(family), field=self._find_field(family))
        if of_dtype:
            root = self._find_cast(birth, tensor.dtype)
        else:
            operand = dataclasses.replace(operand, given=where_given(self._at_work, family, target))
            root, family = self._find_placing(birth, tensor, family, target)
        if root is None or root.site is None:
            return self._by_source(operand, tensor, family, target, of_dtype=of_dtype)
        return self._by_birth(operand, tensor, family, root, target, of_dtype=of_dtype)

    def _find_field(self, family: list[torch.Tensor]) -> str:
        """`batch` or `target` of a traced step, if one of these tensors is part of it."""
        fields = self._state.given
        for tensor in family:
            if tensor in fields:
                return str(fields[tensor])
        return ""

    def _find_cast(self, birth: Birth | None, dtype: torch.dtype) -> Birth | None:
        """The birth that decided a dtype: of the tensor, or of the running module that it was computed in."""
        if birth is None:
            return None
        root = birth.dtype_root()
        return root if root.is_move else self._cast_of_module(dtype) or root

    def _find_placing(
        self, birth: Birth | None, tensor: torch.Tensor, family: list[torch.Tensor], target: torch.device
    ) -> tuple[Birth | None, list[torch.Tensor]]:
        """The birth that decided a device, which may be that of another tensor, and the tensors that it is about."""
        if birth is None:
            return None, family
        root = left_behind(birth) or birth.find_root()
        giver = _follows(root, tensor.device, target)
        if giver is not None and in_optimizer(self._frames, family) is None:
            return giver, _living(giver)
        weights = self._weights_of(root)
        if weights is not None:
            return left_behind(weights) or weights.find_root(), _living(weights)
        return root, family

    def _by_birth(
        self,
        operand: Operand,
        tensor: torch.Tensor,
        family: list[torch.Tensor],
        root: Birth,
        target: torch.device,
        *,
        of_dtype: bool,
    ) -> Operand:
        """The operand with what a recording saw of the birth that decided about it."""
        decides_by_default = not root.is_move and not of_dtype
        left_out = next(iter(root.asked), None) if decides_by_default else None
        site = left_out or root.site
        if site is None:
            return operand
        partners = tuple(self._partners(root, site, target))
        operand = dataclasses.replace(
            operand,
            held=self._find_holder(root, tensor, family),
            birth=to_site(site),
            birth_call=call_text(site),
            birth_partner=next((name for name in partners if name.isidentifier()), ""),
            birth_partners=partners,
            from_move=root.is_move,
            promotion=_promotion_at(root) if of_dtype else None,
        )
        if left_out is not None:
            return operand
        return dataclasses.replace(operand, birth_op=root.call, birth_direct=root.direct)

    def _find_holder(self, root: Birth, tensor: torch.Tensor, family: list[torch.Tensor]) -> Held | None:
        """Who keeps a tensor, or what decided where it is."""
        held = holder(self._state.tracker, self._frames, family or [tensor])
        if held is not None and held.left_behind is not None and held.built is None:
            held = dataclasses.replace(held, built=_find_built(root, held.left_class))
        return held or self._of_weights(root, tensor) or in_module_beside(self._frames, family)

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
        return to_site(root.site) if root is not None and root.is_move else None

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

    def _by_source(
        self, operand: Operand, tensor: torch.Tensor, family: list[torch.Tensor], target: torch.device, *, of_dtype: bool
    ) -> Operand:
        """The story of a tensor that is older than the recording, as the source tells it."""
        found = self._find_origin(family, target, "dtype" if of_dtype else "device")
        held = holder(self._state.tracker, self._frames, [*family, *found.tensors])
        if held is not None and self._is_followed(held, found):
            held = None
        operand = dataclasses.replace(operand, held=held)
        if held is not None and held.how in ("parameter", "buffer"):
            return dataclasses.replace(operand, birth=self._find_registration(held) or found.site)
        if not found.call:  # `model = parts["model"]` has only handed on what holds it
            stored = self._find_line_of_object(family) or (held.assigned if held is not None else None)
            if stored is not None:
                return _made_at(operand, stored)
        partners = () if of_dtype else found.partners
        return dataclasses.replace(
            operand,
            birth=found.site,
            birth_call=found.call,
            birth_op=found.op,
            birth_direct=found.direct,
            birth_partner=next(iter(partners), ""),
            birth_partners=partners,
            from_move=found.op in statements.MOVES,
        )

    def _find_registration(self, held: Held) -> Site | None:
        """The line that made a parameter or a buffer, or gave its module to the model."""
        tracker = self._state.tracker
        return written_later(tracker, held) or held.assigned or registered_at(tracker, held.module or "")

    def _is_followed(self, held: Held, found: provenance.Origin) -> bool:
        """Whether what a module keeps was moved to where another tensor is, which a line that still runs has made."""
        alone = held.how in ("parameter", "buffer") and held.left_behind is None
        return alone and found.direct and holder(self._state.tracker, [], list(found.tensors[-1:])) is None

    def _find_origin(self, family: list[torch.Tensor], target: torch.device, aspect: provenance.Aspect) -> provenance.Origin:
        """The first of a tensor and those it was computed from that has a name."""
        (tensor, *older) = family
        first = provenance.find_origin(self._frames, tensor, target, aspect)
        if first.site is not None:
            return first
        for each in older:
            if getattr(each, aspect) == getattr(tensor, aspect):
                found = provenance.find_origin(self._frames, each, target, aspect)
                if found.site is not None:
                    return found
        return first

    def _find_line_of_object(self, family: list[torch.Tensor]) -> Site | None:
        """The line of a class that stores what an object beside the model keeps, such as a loss, a hook or an average."""
        for frame in self._frames:
            code = frame.f_code
            owner = locals_of(frame).get(code.co_varnames[0]) if code.co_argcount else None
            for name, value in self._kept_beside_the_model(owner):
                kept = [tensor for tensor in tensors_in(value, depth=2) if any(tensor is each for each in family)]
                if type(name) is str and kept:
                    return in_class(type(owner), functools.partial(classes.attribute_assignment, attribute=name))
        return None

    def _kept_beside_the_model(self, owner: object) -> list[tuple[object, object]]:
        """What an object keeps that is no module of the model."""
        if is_module(owner):
            return (
                [*own_tensors(owner).items(), *copy_items(dict_of(owner))] if self._state.tracker.path_of(owner) is None else []
            )
        return list(copy_items(dict_of(owner))) if owner is not None else []

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
        named = names_in(node) if node is not None else []
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
                name = name_in(frame, tensor)
                site = statements.unkept_move(frame.f_code.co_filename, name, frame.f_lineno) if name else None
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
        name = name_in(self._frame, value)
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


def _list_family(tensor: torch.Tensor, birth: Birth | None) -> list[torch.Tensor]:
    """A tensor and those that it is, or was made of: what it views or wraps, and what a recording saw of its past."""
    chain = birth.iterate_chain() if birth is not None else ()
    family = [each for older in chain if (each := older()) is not None] or [tensor, *viewed_base(tensor)]
    wrapped = wrapped_tensor(tensor)
    if wrapped is not None and not any(wrapped is each for each in family):
        family.append(wrapped)
    for each in (*viewed_base(tensor), tensor):  # of `self.weight.T` too
        if is_parameter(each) and not any(member is each for member in family):
            family.insert(0, each)  # `nn.Parameter(data)` has the birth of its data, which somebody else may keep
    return family


def _living(birth: Birth) -> list[torch.Tensor]:
    tensor = birth()
    return [tensor] if tensor is not None else []


def _promotion_at(root: Birth) -> Promotion | None:
    """What an operator made of the dtype that it was given."""
    before = root.parent
    if before is None or root.is_move or not root.call:
        return None
    return Promotion(to_site(root.site), root.call, format_dtype(before.dtype))


def _made_at(operand: Operand, site: Site) -> Operand:
    """The operand, with the call on the line that made it, as that line writes it."""
    call, op = statements.assigned_call(site.text)
    owner = call.rpartition(f".{op}(")[0]
    return dataclasses.replace(operand, birth=site, birth_call=call, birth_op=op, birth_direct=owner == "torch")


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


def _known_before(state: RecordingState, tensor: torch.Tensor, root: Birth) -> bool:
    birth = state.births.find_birth(tensor)
    return birth is None or birth.number < root.number


def _argument_nodes(text: str) -> Iterable[ast.expr]:
    node = parsed_expression(text)
    return arguments_in(node) if isinstance(node, ast.Call) else ()


def _is_requested(value: Any, requested: Any) -> bool:
    known = type(value) is str or type(value) is int or type(value) is DEVICE
    return value is requested or (known and str(value) == format_value(requested))


def _find_built(root: Birth, left_class: str) -> Site | None:
    """The recorded line that built the module that was left behind; None if it built another one around it."""
    site = to_site(root.built)
    return site if site is not None and statements.assigned_call(site.text)[1] == left_class else None
