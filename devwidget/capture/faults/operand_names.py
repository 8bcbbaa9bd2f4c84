"""Names: how the user's code calls a tensor, who keeps it, and which line put it where it is."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture.faults.made_by import made_by
from devwidget.capture.faults.owners import holder, registered_at
from devwidget.capture.modules import is_module, own_tensors
from devwidget.capture.object_fields import word
from devwidget.capture.recording.births import Birth
from devwidget.capture.recording.state import State
from devwidget.capture.source_code import provenance, statements
from devwidget.capture.source_code.attributes import attribute_makers
from devwidget.capture.source_code.call_sites import call_text, line_of, locals_of, raw_site, to_site, user_frame
from devwidget.capture.source_code.class_functions import functions_of
from devwidget.capture.source_code.frames import deep_tensors, lookup, name_in, user_frames
from devwidget.capture.source_code.value_paths import path_of
from devwidget.capture.tensors import DEVICE, is_tensor, viewed
from devwidget.records.site import Site
from devwidget.records.syntax import parsed_expression
from devwidget.records.trace import Held, Operand


class Names:
    """Names as seen from one failing frame; keeps the frame no longer than the fault takes to describe."""

    def __init__(self, state: State, frame: FrameType) -> None:
        self._state = state
        self._frame = user_frame(frame)
        self._frames = list(user_frames(frame))

    def expression(self, tensor: object) -> str:
        """How the failing frame's code can write this tensor; "" if it has no name there."""
        return name_in(self._frame, lambda value: value is tensor) if self._frame is not None else ""

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
        birth = self._state.births.get(tensor)
        family = [t for b in birth.chain() if (t := b.tensor()) is not None] if birth else [tensor, *viewed(tensor)]
        operand = dataclasses.replace(operand, ineffective=self._ineffective(family or [tensor]))
        root = None if birth is None else birth.dtype_root() if of_dtype else left_behind(birth) or birth.root()
        if of_dtype and root is not None and not root.is_move:
            root = self._cast_of_module(tensor.dtype) or root
        if root is None or root.site is None:
            return self._by_source(operand, tensor, family, target, of_dtype=of_dtype)
        partners = tuple(self._partners(root, target))
        return dataclasses.replace(
            operand,
            held=holder(self._state.tracker, self._frames, family or [tensor]),
            birth=to_site(root.site),
            birth_call=call_text(root.site),
            birth_op=root.call,
            birth_direct=root.direct,
            birth_partner=next((name for name in partners if name.isidentifier()), ""),
            birth_partners=partners,
            from_move=root.is_move,
        )

    def _cast_of_module(self, dtype: torch.dtype) -> Birth | None:
        """The line that gave the running module this dtype, which all that it computes has from it."""
        module = self._state.tracker.running
        for tensor in own_tensors(module).values() if module is not None else ():
            birth = self._state.births.get(tensor) if tensor.dtype == dtype else None
            if birth is not None and birth.dtype_root().is_move:
                return birth.dtype_root()
        return None

    def _by_source(
        self, operand: Operand, tensor: torch.Tensor, family: list[torch.Tensor], target: torch.device, *, of_dtype: bool
    ) -> Operand:
        """The story of a tensor that is older than the recording, as the source tells it."""
        same = (lambda t: t.dtype == tensor.dtype) if of_dtype else (lambda t: t.device == tensor.device)
        found = provenance.origin(self._frames, tensor, target, same)
        held = holder(self._state.tracker, self._frames, [*family, *found.tensors])
        if held is not None and (found.site is None or held.how in ("parameter", "buffer")):
            birth = held.assigned or registered_at(self._state.tracker, held.module or "") or found.site
            kept = dataclasses.replace(operand, held=held, birth=birth)
            return kept if held.how in ("parameter", "buffer") else self._put_there(kept, held, tensor, target)
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
        )

    def _put_there(self, operand: Operand, held: Held, tensor: torch.Tensor, target: torch.device) -> Operand:
        """What a module keeps, with the call that made it, as the methods of its class tell."""
        owner = next((module for path, module in self._state.tracker.modules() if path == held.module), None)
        return made_by(operand, attribute_makers(owner, held.name, tensor.device), target) if owner is not None else operand

    def line_facts(self, text: str, operands: Sequence[Operand], target: torch.device) -> dict[str, str]:
        """Tuples that operands are items of, as `state:2`, and variables of the failing line that are on the right device."""
        frame = self._frame
        if frame is None:
            return {}
        tuples = {name: len(value) for o in operands if (name := path_of(o.expression)[0])
                  if type(value := lookup(frame, name)) is tuple}  # fmt: skip
        node = parsed_expression(text)
        named = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)] if node is not None else []
        there = [name for name in named if is_tensor(value := lookup(frame, name)) and value.device == target]
        facts = {"tuples": " ".join(f"{name}:{size}" for name, size in tuples.items()), "at hand": " ".join(there)}
        return {name: fact for name, fact in facts.items() if fact}

    def _ineffective(self, family: list[torch.Tensor]) -> Site | None:
        """The line that asked to move one of these tensors and dropped the result."""
        for tensor in family:
            attempt = self._state.attempts.get(tensor)
            if attempt is not None and attempt.site is not None:
                site = statements.discarded_move(attempt.site.code.co_filename, line_of(attempt.site))
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
        here = to_site(raw_site(self._frame))
        for node in _argument_nodes(call_text(raw_site(self._frame))):
            text = ast.unparse(node)
            if isinstance(node, ast.Constant) and _same(node.value, requested):
                return text, here
            if isinstance(node, ast.Name) and _same(lookup(self._frame, node.id), requested):
                given = self._assigned(node.id)
                return text, statements.returned_by(given) or given or here
        return "", here

    def argument_of(self, value: Any) -> tuple[str, Site | None]:
        """The variable that holds an argument of the failing call, and the line that assigned it."""
        if self._frame is None:
            return "", None
        name = name_in(self._frame, lambda other: other is value)
        return name, self._assigned(name) if name else None

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

    def _partners(self, root: Birth, target: torch.device) -> Iterator[str]:
        """Tensors on the right device that the birth's own function has at hand: its arguments, its variables, its module's."""
        code = root.site.code if root.site is not None else None
        frame = next((f for f in self._frames if f.f_code is code), None)
        locals_ = locals_of(frame) if frame is not None else {}
        for name in [*(code.co_varnames[: code.co_argcount] if code is not None else ()), *locals_]:
            value = locals_.get(name)
            if is_tensor(value) and value.device == target and _known_before(self._state, value, root):
                yield str(name)
        owner = locals_.get("self") if frame is not None else _module_of(self._state, code)
        if is_module(owner) and code is not None and code.co_name not in statements.INITIALISERS:
            yield from (f"self{path}" for path, tensor in deep_tensors(owner) if tensor.device == target)


def left_behind(birth: Birth) -> Birth | None:
    """The copy that stayed where it was when what it copies, a parameter, moved on."""
    copy = None
    for each in birth.chain():
        if copy is not None and each.moved_on:
            return copy
        copy = each if each.call == "clone" else copy
    return None


def _module_of(state: State, code: CodeType | None) -> nn.Module | None:
    """A module of the model whose class has a method with this code."""
    if code is None:
        return None
    other: set[int] = set()  # classes that have no such method; by id, because a set of types asks their metaclass
    for _, module in state.tracker.modules():
        if id(type(module)) not in other and any(function.__code__ is code for function in functions_of(type(module))):
            return module
        other.add(id(type(module)))
    return None


def _asked_in_vain(frame: FrameType, name: str) -> Site | None:
    """A move of a variable that was not called, or whose result was thrown away, above a frame's line."""
    file, line = frame.f_code.co_filename, frame.f_lineno
    return statements.uncalled_move(file, name, line) or statements.unkept_move(file, name, line)


def _known_before(state: State, tensor: torch.Tensor, root: Birth) -> bool:
    birth = state.births.get(tensor)
    return birth is None or birth.number < root.number


def _argument_nodes(text: str) -> Iterable[ast.expr]:
    node = parsed_expression(text)
    return [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else ()


def _same(value: Any, requested: Any) -> bool:
    known = type(value) is str or type(value) is int or type(value) is DEVICE
    return value is requested or (known and str(value) == word(requested))
