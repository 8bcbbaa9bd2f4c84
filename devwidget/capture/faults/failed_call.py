"""A torch call that raised: its arguments by name, its repetition with others, and its record as a fault."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FrameType
from typing import Any

import torch
import torch.utils.checkpoint
from torch.overrides import get_testing_overrides

from devwidget.capture import torch_internals
from devwidget.capture.faults import operand_names
from devwidget.capture.interrupts import is_from_handler
from devwidget.capture.object_fields import format_value, is_among, is_exactly
from devwidget.capture.patching.registry import PatchedFunction
from devwidget.capture.recording.event_log import device_id, operand_of
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.arguments import arguments_of, has_stars, where_library_decides
from devwidget.capture.source_code.call_sites import call_text, raw_site
from devwidget.capture.source_code.expressions import Scope, operands_of
from devwidget.capture.source_code.frames import is_place
from devwidget.capture.source_code.provenance import Aspect
from devwidget.capture.source_code.stack import Owner, caller, locals_of, stack
from devwidget.capture.tensors import all_tensors, is_module, is_parameter, is_tensor, replace_tensors, tensors_in
from devwidget.records.errors import error_text
from devwidget.records.fault_details import FaultDetail, NoKernel
from devwidget.records.syntax import arguments_in, names_in, parsed_operation
from devwidget.records.trace import Family, Nearby, Operand


def arguments(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors of a call by the operator's own names."""
    names = _signature(func, args)
    labels = [*names[: len(args)], *map(str, range(len(names), len(args))), *map(format_value, kwargs)]
    found: list[tuple[str, torch.Tensor]] = []
    for label, value in zip(labels, (*args, *kwargs.values()), strict=True):
        if is_tensor(value):
            found.append((label, value))
        else:
            found += [(f"{label}[{place}]", part) for place, part in enumerate(tensors_in(value))]
    return found


_INDEXED = {"__getitem__": ("input", "index"), "__setitem__": ("input", "index", "value")}
"""Python's names for subscripts, which torch's table calls `k` and `v`."""


def _signature(func: Any, args: tuple[Any, ...]) -> tuple[str, ...]:
    """Return argument names of the operator that takes such arguments, else from torch's override table; () if unknown."""
    original = _original(func)
    name = getattr(original, "__name__", "")
    if name in _INDEXED:
        return _INDEXED[name]
    names: tuple[str, ...] = ()
    if type(original) is BuiltinFunctionType:
        names = _of_operator(name, tuple(map(_holds_tensors, args)))
    names = names or _signatures().get(id(original), ())
    return tuple("input" if each == "self" else each for each in names)  # as the documentation of torch calls it


@functools.cache
def _of_operator(name: str, holding: tuple[str, ...]) -> tuple[str, ...]:
    """Return the argument names of the first overload that takes tensors and lists of them where a call has them."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or not hasattr(packet, "overloads"):  # `__new__` is a method of the namespace, not an operator
        return ()
    for overload in packet.overloads():
        wanted = getattr(packet, overload)._schema.arguments
        if len(wanted) >= len(holding) and all(map(_takes, wanted, holding)):
            return tuple(each.name for each in wanted)
    return ()


def _holds_tensors(value: Any) -> str:
    """Return `tensor`, or `tensors` for a list of them; "" for any other argument."""
    if is_tensor(value):
        return "tensor"
    if is_exactly(value, (list, tuple)) and any(map(is_tensor, value)):
        return "tensors"
    return ""


def _takes(wanted: Any, holding: str) -> bool:
    """Return whether an argument of a schema takes what a call has there."""
    kind = str(wanted.type)
    match holding:
        case "tensor":
            return kind in ("Tensor", "Optional[Tensor]")
        case "tensors":
            return kind in ("List[Tensor]", "List[Optional[Tensor]]")
    return kind != "Tensor"


def _original(func: Any) -> Any:
    """Return torch's own function, even if it is patched."""
    if type(func) is PatchedFunction:
        return func.__wrapped__
    return func


@functools.cache
def _signatures() -> dict[int, tuple[str, ...]]:
    """Return argument names by the id of torch functions. Ids are stable because torch keeps these functions alive."""
    names = {}
    for func, stand_in in get_testing_overrides().items():
        code = stand_in.__code__
        names[id(_original(func))] = tuple(code.co_varnames[: code.co_argcount])
    return names


def written_names(text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, str]:
    """Map the ids of the tensor arguments to their expressions in the call's source: `batch.mask[..., None]`."""
    node, keywords = parsed_operation(text), list[ast.keyword]()
    parts = operands_of(node)
    if isinstance(node, ast.Call):
        parts, keywords = node.args, node.keywords
        if isinstance(node.func, ast.Attribute) and len(parts) == len(args) - 1:
            parts = [node.func.value, *parts]  # torch gives a method its object
    pairs = [(keyword.value, kwargs[keyword.arg]) for keyword in keywords if keyword.arg in kwargs]
    # A value written to an item follows the item.
    if len(parts) == len(args) or isinstance(node, ast.Subscript):
        pairs += zip(parts, args, strict=False)
    for part, arg in list(pairs):
        if isinstance(part, ast.List | ast.Tuple) and is_exactly(arg, (list, tuple)) and len(part.elts) == len(arg):
            pairs += zip(part.elts, arg, strict=True)
    return {id(arg): ast.unparse(part) for part, arg in pairs if is_tensor(arg)}


def handed_on(frame: FrameType, text: str, given: Sequence[torch.Tensor]) -> dict[int, str]:
    """Map the ids of tensors of a failing call inside of a library to the arguments by which the user passed them.

    They are the values of the parameters of the function or module that the user called. The function may have given a
    parameter another value: `lengths, order = torch.sort(lengths)`.

    Args:
        frame: the innermost call of the library.
        text: source of the call by which the user entered the library.
        given: tensors of the failing call.
    """
    call, entered = parsed_operation(text), _entered(frame)
    user = entered[-1].f_back if entered else frame
    if not isinstance(call, ast.Call) or user is None:
        return {}
    scope, found = Scope(user), dict[int, str]()
    called = scope.value(call.func)
    if is_module(called):
        homes = {tensor.device for tensor in all_tensors(called)}
        if len(homes) > 1:  # it computes on each of them: a value need not be where its argument was
            return {}
        found = _passed_from_elsewhere(scope, call, homes, given)
    for each in entered:
        values, written = locals_of(each), arguments_of(each) or {}
        found |= {id(values[name]): ast.unparse(part) for name, part in written.items() if is_tensor(values.get(name))}
    return found


def _entered(frame: FrameType) -> list[FrameType]:
    """Return the frames of the library from the innermost one to the one that the user called."""
    found = []
    for owner, each in stack(frame):
        if owner is Owner.USER:
            break
        found.append(each)
    return found


def _passed_from_elsewhere(
    scope: Scope, call: ast.Call, homes: set[torch.device], given: Sequence[torch.Tensor]
) -> dict[int, str]:
    """Return the one argument that is not on the device of the module, for the one tensor inside that is not either."""
    passed = []
    for part in arguments_in(call):
        value = scope.value(part)
        if is_tensor(value) and value.device not in homes:
            passed.append(part)
    inside = {id(tensor) for tensor in given if tensor.device not in homes}
    if homes and len(inside) == 1 and len(passed) == 1:
        return {inside.pop(): ast.unparse(passed[0])}
    return {}


def computed(text: str) -> str:
    """Return the one argument of a module or library call that is computed on the line, so that it has no name."""
    kinds, call = ast.Call | ast.BinOp | ast.UnaryOp | ast.Subscript, parsed_operation(text)
    computed = [part for part in arguments_in(call) if isinstance(part, kinds)]
    found = list(filter(names_in, computed))
    if len(found) == 1 and not has_stars(call):
        return ast.unparse(found[0])
    return ""


def is_attribute_or_item(text: str) -> bool:
    """Return whether an expression can be repeated, because it only reads an attribute or an item."""
    node = parsed_operation(text)
    return isinstance(node, ast.Attribute | ast.Subscript) and is_place(node)


NOT_OURS = object()
"""Result for an exception that is not a placement fault, or could not be repaired."""


@dataclass(frozen=True, slots=True)
class FailedCall:
    """One call as the function mode saw it.

    Attributes:
        func, args, kwargs: the call.
        error: what it raised.
        frame: who called.
    """

    state: RecordingState
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    error: BaseException
    frame: FrameType

    @property
    def name(self) -> str:
        """Return the torch function's name: `linear` for the operator `linear.default`, too."""
        return str(getattr(self.func, "__name__", self.func)).partition(".")[0] or "operation"

    def tensors(self) -> list[torch.Tensor]:
        """Return every tensor among the arguments."""
        return list(tensors_in((self.args, self.kwargs)))

    def again(self, change: Callable[[Any], Any]) -> Any:
        """Repeat the call with each argument changed. NOT_OURS unless this recording repairs and the call succeeds."""
        if not self.state.heal:
            return NOT_OURS
        with self.state.tracker.set_cause("healed"):
            try:
                return self.func(*map(change, self.args), **{name: change(value) for name, value in self.kwargs.items()})
            except torch_internals.StopRecomputation:
                raise
            except Exception as other:  # that was not all that was wrong: the caller raises the first error
                if is_from_handler(other):
                    raise
                return NOT_OURS

    def again_replacing(self, old: Any, new: Any) -> Any:
        """Repeat the call with another object in place of an argument."""

        def replace_old(value: Any) -> Any:
            if value is old:
                return new
            return value

        return self.again(replace_old)

    def again_changing(self, strays: Sequence[torch.Tensor], change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        """Repeat the call with these tensors changed, differentiably, so that gradients flow back."""

        def change_strays(value: Any) -> Any:
            return replace_tensors(value, lambda tensor: change(tensor) if is_among(tensor, strays) else tensor)

        return self.again(change_strays)

    def again_moved(self, strays: Sequence[torch.Tensor], target: torch.device) -> Any:
        """Repeat the call with these tensors moved."""
        return self.again_changing(strays, lambda tensor: tensor.to(target))

    def report(
        self, what: Family, strays: Sequence[torch.Tensor], target: torch.device, out: Any, detail: FaultDetail | None = None,
        *, others: tuple[Operand, ...] = (),
    ) -> None:  # fmt: skip
        """Record this call once for each line, module and creation site: a loop may fail ten thousand times.

        Args:
            what: the family.
            strays: the tensors on the wrong device, or with the wrong dtype.
            target: where they should have been.
            out: result of the repaired call, NOT_OURS if it failed.
            detail: what is known of faults of this family only.
            others: operands that are not tensors.
        """
        site = raw_site(self.frame)
        roots = map(self.state.births.find_root, strays)
        births = frozenset(root.site for root in roots if root is not None)
        if not self.state.log.is_new_fault((what, site, self.name, self.state.tracker.module, births, target)):
            return
        names, text = operand_names.Names(self.state, self.frame), call_text(site)
        aspect: Aspect = "device"
        if what == "dtype" or (isinstance(detail, NoKernel) and detail.dtype):
            aspect = "dtype"
        operands = self._list_operands(names, strays, target, aspect)
        taken = None
        for tensor in strays:
            taken = taken or names.variables_taken(tensor, target)
        tuples, lists = names.containers_of(operands)
        nearby = Nearby(
            taken=taken,
            tuples=tuples,
            lists=lists,
            at_hand=names.tensors_at_hand(text, target),
            alike=() if self.state.heal else names.others_of_module(operands),  # healed, each of them has its own fault
            library=where_library_decides(self.frame, target),
        )
        fault = self.state.report_fault(
            what,
            self.name,
            site,
            module=self._module(),
            error=error_text(self.error),
            operands=(*operands, *others),
            target=device_id(target),
            healed=out is not NOT_OURS,
            expression=text,
            model_name=names.model_name(),
            detail=detail,
            nearby=nearby,
        )
        explain_fault = self.state.tracker.here.explain_fault
        if explain_fault is not None and what == "operands":
            explain_fault(self.frame, fault)

    def _list_operands(
        self, names: operand_names.Names, strays: Sequence[torch.Tensor], target: torch.device, aspect: Aspect
    ) -> list[Operand]:
        operands = []
        given = arguments(self.func, self.args, self.kwargs)
        sources = self._sources(names, given)
        for argument, tensor in given:
            source, expression = sources.get(id(tensor), ""), names.expression(tensor)
            if not expression and is_attribute_or_item(source):
                expression = source
            if is_among(tensor, strays):
                stray = names.describe_stray(tensor, argument, expression, target, aspect, source=source)
                operands.append(names.beside_the_model(stray, target))
            else:
                operands.append(operand_of(tensor, argument, expression, source=source))
        return operands

    def _module(self) -> str | None:
        """Return the path of the module that the call belongs to. Its own hooks run after the global ones, which mark its
        end."""
        for _, frame in stack(self.frame):
            if frame.f_code is torch_internals.module_call:
                module = locals_of(frame).get("self")
                path = self.state.tracker.path_of(module) if is_module(module) else None
                if path is not None:
                    return path
                break
        return self.state.tracker.module

    def _sources(self, names: operand_names.Names, given: list[tuple[str, torch.Tensor]]) -> dict[int, str]:
        """Return the expression on the failing line for each tensor, by id. A tensor that a library derived from one counts as
        that one.
        """
        site, near = raw_site(self.frame), caller(self.frame)
        text = call_text(site)
        direct = near is not None and site is not None and near.f_code is site.code
        if direct:
            return written_names(text, self.args, self.kwargs)
        if near is not None:
            found = handed_on(near, text, [tensor for _, tensor in given])
            if found:
                return found
        unnamed = {}
        for argument, tensor in given:
            birth = self.state.births.find_birth(tensor)
            is_made_on_line = birth is not None and birth.site is not None and site is not None and birth.site.is_line_of(site)
            is_named = is_parameter(tensor) or argument.endswith("]") or names.expression(tensor)
            if not is_named and not is_made_on_line:
                unnamed[id(tensor)] = computed(text)
        if len(unnamed) == 1:
            return unnamed
        return {}
