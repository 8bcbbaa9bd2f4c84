"""Questions about a plan: each answer is a plan that was run."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import replace_tensors, tensors_in
from devwidget.planning.changes import Changed, Option, find_batch_size, list_options, resize_batch
from devwidget.planning.child_process import ask_child
from devwidget.planning.generation import make_generation
from devwidget.planning.placement import find_step_sizes
from devwidget.planning.sizes import LargestSearch, PlanGrid, find_tightest_gpu, fit_plans
from devwidget.records.answers import Change, Changes, Fitted, Generation, LargestBatch, PlannedSize
from devwidget.records.errors import DevwidgetError
from devwidget.records.plan import Plan
from devwidget.records.schema.message import Message


@dataclass
class WhatIf:
    """The step of a plan, to be planned again with something changed. Questions are answered where GPUs can be simulated.

    Attributes:
        model: as it was given; it is kept as long as the plan is.
        inputs: what it is called with.
        asked: the other arguments of the plan.
        first: the plan itself.
        again: plans a step.
    """

    model: nn.Module
    inputs: Arguments
    asked: dict[str, Any]
    first: Plan
    again: Callable[[nn.Module, Arguments, dict[str, Any], Changed], Plan]

    def plan_changed(self, change: Callable[[torch.Tensor], torch.Tensor], changed: Changed) -> Plan:
        """Plan the step again, with the tensors of the batch and other things changed."""
        parts = (self.inputs.args, self.inputs.kwargs, self.inputs.target)
        inputs = Arguments(*(replace_tensors(part, change) for part in parts))
        return self.again(self.model, inputs, {**self.asked, **changed.asked}, changed)

    def largest_batch(self) -> LargestBatch:
        """See `Plan.largest_batch`."""
        return ask_child(WhatIf._find_largest_batch, self)

    def cheapest_change(self) -> Changes:
        """See `Plan.cheapest_change`."""
        return ask_child(WhatIf._rank_changes, self)

    def generation(self, new_tokens: int) -> Generation:
        """See `Plan.generation`."""
        return ask_child(WhatIf._plan_generation, self, new_tokens)

    def sliders(self) -> Any:
        """See `Plan.sliders`."""
        from devwidget.ui.sliders import Sliders  # late: a plan needs no widgets

        return Sliders(ask_child(WhatIf.fit_sizes, self))

    def fit_sizes(self) -> Fitted:
        """Plan several batches and lengths of texts, and fit what lies between them."""
        batch, length = self._find_size(0), self._find_size(1)
        if batch is None:
            raise _refuse_no_size()

        def plan_size(samples: int, tokens: int) -> Plan:
            def resize_tensor(tensor: torch.Tensor) -> torch.Tensor:
                longer = tensor if length is None else resize_batch(tensor, 1, length, tokens)
                return resize_batch(longer, 0, batch, samples)

            return self.plan_changed(resize_tensor, Changed())

        return fit_plans(PlanGrid(plan_size, {(batch, length or 0): self.first}), batch, length)

    def _find_largest_batch(self) -> LargestBatch:
        size = self._find_size(0)
        if size is None:
            raise _refuse_no_size()
        found = self._search_largest(0, size)
        answer = found.largest_fitting()
        gpu = find_tightest_gpu(found.plans[answer or min(found.plans)])
        runs = tuple(PlannedSize(each, find_tightest_gpu(plan).on_card, plan.fits) for each, plan in found.plans.items())
        return LargestBatch(self.first.model, answer, gpu.on_card, gpu.capacity, runs)

    def _find_size(self, dim: int) -> int | None:
        parts = self.inputs.args, self.inputs.kwargs, self.inputs.target
        return None if next(find_step_sizes(parts), None) is not None else find_batch_size(list(tensors_in(parts)), dim)

    def _search_largest(self, dim: int, size: int) -> LargestSearch:
        """Search the largest size of a dimension that fits, of texts at most the one of the step."""
        found = LargestSearch(self._make_planner(dim, size, Changed()), {size: self.first})
        found.plan_until_found()
        return found

    def _make_planner(self, dim: int, size: int, changed: Changed) -> Callable[[int], Plan]:
        return lambda after: self.plan_changed(lambda tensor: resize_batch(tensor, dim, size, after), changed)

    def _rank_changes(self) -> Changes:
        found = [self._try_option(option) for option in list_options(self.model, self.asked)]
        if not self.first.fits:
            found += [*self._try_smaller_batch(), *self._try_shorter_text()]
        fitting = [change for change in found if change.fits]
        rest = sorted((change for change in found if not change.fits), key=lambda change: -change.saved)
        return Changes(self.first.model, find_tightest_gpu(self.first).on_card, (*fitting, *rest))

    def _plan_generation(self, new_tokens: int) -> Generation:
        if not is_count(new_tokens):
            raise DevwidgetError(
                Message("cannot write {new_tokens} tokens", new_tokens=repr(new_tokens)),
                instead="plan.generation(new_tokens=512)",
            )
        return make_generation(self.model, self.inputs, self.asked, new_tokens)

    def _try_option(self, option: Option) -> Change:
        try:
            # Of a step that the user has not written.
            with warnings.catch_warnings(action="ignore"):
                plan = self.plan_changed(option.changed.cast_floats, option.changed)
        except DevwidgetError as error:
            return Change(option.what, option.code, option.cost, 0, 0, False, error.what)
        return self._describe_change(option.what, option.code, option.cost, plan)

    def _try_smaller_batch(self) -> Iterator[Change]:
        """Yield the largest batch that fits, and the largest that fits when gradients of several are added up."""
        size, found = self._search_smaller(0)
        if found is None:
            return
        answer = found.largest_fitting()
        steps = Message("{count} batches in place of one", count=math.ceil(size / answer))
        yield self._describe_change(Message("a batch of {size}", size=answer), "", steps, found.plans[answer])
        if "backward" not in self.first.phases:
            return
        plan = self._make_planner(0, size, Changed(accumulated=True))
        several = LargestSearch(plan, {answer: plan(answer)})
        if not several.plans[answer].fits:
            several.plan_until_found()
        if answer := several.largest_fitting():
            what = Message("gradients of batches of {size}, accumulated", size=answer)
            cost = Message("{count} forwards and backwards for one step", count=math.ceil(size / answer))
            yield self._describe_change(what, "", cost, several.plans[answer])

    def _try_shorter_text(self) -> Iterator[Change]:
        size, found = self._search_smaller(1)
        if found is not None:
            answer = found.largest_fitting()
            cost = Message("what stands beyond in texts of {size}", size=size)
            yield self._describe_change(Message("a text of {size}", size=answer), "", cost, found.plans[answer])

    def _search_smaller(self, dim: int) -> tuple[int, LargestSearch | None]:
        """Return the size of a dimension, and the largest that fits in place of it if one does."""
        size = self._find_size(dim)
        if size is None:
            return 0, None
        try:
            found = self._search_largest(dim, size)
        except DevwidgetError:
            # A model for texts of one length, for instance: there is nothing to propose.
            return size, None
        return size, found if found.largest_fitting() else None

    def _describe_change(self, what: str, code: str, cost: str, plan: Plan) -> Change:
        taken = find_tightest_gpu(plan).on_card
        return Change(what, code, cost, taken, find_tightest_gpu(self.first).on_card - taken, plan.fits)


def _refuse_no_size() -> DevwidgetError:
    why = Message("it is packed, or holds no tensor with a dimension")
    return DevwidgetError(Message("the batch has no size to be changed"), why=why)


def is_count(value: object) -> bool:
    """Whether a value is a whole number above zero."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
