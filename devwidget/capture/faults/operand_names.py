"""Names of a tensor in the user's code, its owner, and the line that put it where it is."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import torch

from devwidget.capture.faults.story import Asked, add_story, list_family
from devwidget.capture.modules import own, own_tensors
from devwidget.capture.object_fields import format_value, is_among
from devwidget.capture.recording.births import Birth
from devwidget.capture.recording.event_log import device_id
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code import statements
from devwidget.capture.source_code.arguments import where_given
from devwidget.capture.source_code.call_sites import RawSite, call_text, line_of, locals_of, raw_site, to_site
from devwidget.capture.source_code.filled_lists import find_append
from devwidget.capture.source_code.frames import lookup, name_in, path_of
from devwidget.capture.source_code.loop_variables import variables_taken
from devwidget.capture.source_code.stack import frames_at_work, user_frames
from devwidget.capture.source_code.written_moves import DiscardedMove, find_discarded_move, find_forgetful_move
from devwidget.capture.tensors import DEVICE, is_tensor, viewed_base
from devwidget.records.site import Site
from devwidget.records.syntax import arguments_in, names_in, parsed_expression, parsed_statement
from devwidget.records.trace import Operand, Taken


class Names:
    """Names as seen from one failing frame. Keeps the frame only while the fault is described."""

    def __init__(self, state: RecordingState, frame: FrameType) -> None:
        self._state = state
        self._site = raw_site(frame)
        self._frames = list(user_frames(frame))
        self._frame = next(iter(self._frames), None)
        self._at_work = list(frames_at_work(frame))
        running = parsed_expression(call_text(self._site))
        self._read = frozenset(names_in(running)) if running is not None else frozenset()

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

    def with_birth(self, operand: Operand, tensor: torch.Tensor, target: torch.device, *, of_dtype: bool = False) -> Operand:
        """Return the operand with its owner and the line that decided its device or dtype."""
        family = list_family(tensor, self._state.births.find_birth(tensor))
        asked = Asked(self._state, self._frames, tensor, family, target, "dtype" if of_dtype else "device")
        discarded = self._find_discarded_move(family)
        return dataclasses.replace(
            add_story(operand, asked),
            ineffective=discarded.site if discarded is not None else None,
            ineffective_method=discarded.method if discarded is not None else "",
            listed=find_append(self._frames, tensor),
            forgotten=find_forgetful_move(self._frames, tensor, target),
            field=self._find_field(family),
            given=None if of_dtype else where_given(self._at_work, family, target),
        )

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

    def tuples_of(self, operands: Sequence[Operand]) -> tuple[tuple[str, int], ...]:
        """Return the tuples whose items are operands, with their lengths."""
        found = {}
        for operand in operands:
            name = path_of(operand.expression)[0]
            value = self._value_of(name)
            if type(value) is tuple:
                found[name] = len(value)
        return tuple(found.items())

    def lists_of(self, operands: Sequence[Operand]) -> tuple[str, ...]:
        """The variables that are lists and have operands as items."""
        names = dict.fromkeys(path_of(operand.expression)[0] for operand in operands)
        return tuple(name for name in names if type(self._value_of(name)) is list)

    def tensors_at_hand(self, text: str, target: torch.device) -> tuple[str, ...]:
        """Return the variables of the failing line on the right device, then such arguments of its function."""
        node = parsed_expression(text)
        names = names_in(node) if node is not None else []
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
        stray = next((each for each in operands if each.stray and each.held and each.held.left_behind), None)
        site, modules = to_site(self._site), dict(self._state.tracker.list_modules())
        statement = parsed_statement(site.text) if site is not None else None
        if stray is None or stray.held is None or statement is None or stray.held.module not in modules:
            return ()
        own, found = list(own_tensors(modules[stray.held.module]).values()), []
        for name in dict.fromkeys(names_in(statement)):
            value = self._value_of(name)
            if not is_tensor(value) or device_id(value.device) != stray.device or name == stray.expression:
                continue
            if any(is_among(each, own) for each in (value, *viewed_base(value))):
                found.append(name)
        return tuple(found)

    def _value_of(self, name: str) -> Any:
        if self._frame is None:
            return None
        return lookup(self._frame, name)

    def _find_discarded_move(self, family: list[torch.Tensor]) -> DiscardedMove | None:
        """Return the line that asked to move one of these tensors, or an object that holds it, and dropped the result."""
        for tensor in family:
            attempt = self._state.attempts.find_birth(tensor)
            for asked in _askers(attempt) if attempt is not None else ():
                site = statements.discarded_move(asked.code.co_filename, line_of(asked))
                if site is not None:
                    return DiscardedMove(site, "")
            for frame in self._frames:
                name = name_in(frame, tensor)
                found = find_discarded_move(frame, name) if name else None
                if found is not None:
                    return found
        return None

    def device_argument(self, requested: Any) -> tuple[str, Site | None]:
        """Return the expression that named a device in the failing call, and the line that gave it its value."""
        here, call = to_site(self._site), parsed_expression(call_text(self._site))
        for node in arguments_in(call) if isinstance(call, ast.Call) else ():
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

    def made_by_call(self, value: Any, factory: str) -> Site | None:
        """Return the line that created a non-tensor object: where the file calls its factory and assigns the result."""
        site = self.argument_of(value)[1]
        if site is not None or self._frame is None:
            return site
        return statements.made_by(self._frame.f_code.co_filename, factory)

    def _assigned(self, name: str) -> Site | None:
        frame = self._frame
        if frame is None or not name:
            return None
        return statements.assignment(frame.f_code.co_filename, name, frame.f_lineno)


def _askers(attempt: Birth) -> Iterator[RawSite]:
    """Yield the line that moved a tensor, and lines that asked an object to move but dropped the moved tensor."""
    if attempt.site is not None:
        yield attempt.site
    if attempt() is None:
        yield from attempt.asked


def _is_requested(value: Any, requested: Any) -> bool:
    known = type(value) is str or type(value) is int or type(value) is DEVICE
    return value is requested or (known and str(value) == format_value(requested))
