"""A torch call that raised: repeat it with other arguments, or record it as a fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
import torch.utils.checkpoint

from devwidget.capture import torch_internals
from devwidget.capture.faults import operand_names
from devwidget.capture.faults.call_arguments import arguments, computed, handed_on, is_attribute_or_item, written_names
from devwidget.capture.interrupts import is_from_handler
from devwidget.capture.modules import is_module
from devwidget.capture.object_fields import is_among
from devwidget.capture.recording.event_log import device_id, operand_of
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.arguments import where_library_decides
from devwidget.capture.source_code.call_sites import call_text, raw_site
from devwidget.capture.source_code.stack import caller, locals_of, stack
from devwidget.capture.tensors import is_parameter, replace_tensors, tensors_in
from devwidget.records.errors import error_text
from devwidget.records.fault_details import FaultDetail, NoKernel
from devwidget.records.trace import Family, Nearby, Operand

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
        of_dtype = what == "dtype" or (isinstance(detail, NoKernel) and bool(detail.dtype))
        operands = self._list_operands(names, strays, target, of_dtype=of_dtype)
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
        self, names: operand_names.Names, strays: Sequence[torch.Tensor], target: torch.device, *, of_dtype: bool
    ) -> list[Operand]:
        operands = []
        given = arguments(self.func, self.args, self.kwargs)
        sources = self._sources(names, given)
        for argument, tensor in given:
            stray = is_among(tensor, strays)
            source = sources.get(id(tensor), "")
            expression = names.expression(tensor) or (source if is_attribute_or_item(source) else "")
            operand = operand_of(tensor, argument, expression, stray=stray, source=source)
            if stray:
                operand = names.beside_the_model(names.with_birth(operand, tensor, target, of_dtype=of_dtype), target)
            operands.append(operand)
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
