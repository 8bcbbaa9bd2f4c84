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
from devwidget.planning.changes import Changed, Option, options, resized, size_of
from devwidget.planning.child_process import ask
from devwidget.planning.generation import make_generation
from devwidget.planning.placement import step_sizes
from devwidget.planning.sizes import Grid, Largest, fit, tightest
from devwidget.records.answers.fitted import Fitted
from devwidget.records.answers.generation import Generation
from devwidget.records.answers.what_if import Change, Changes, LargestBatch, PlannedSize
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

    def plan(self, change: Callable[[torch.Tensor], torch.Tensor], changed: Changed) -> Plan:
        """The step again, with the tensors of the batch and other things changed."""
        parts = (self.inputs.args, self.inputs.kwargs, self.inputs.target)
        inputs = Arguments(*(replace_tensors(part, change) for part in parts))
        return self.again(self.model, inputs, {**self.asked, **changed.asked}, changed)

    def largest_batch(self) -> LargestBatch:
        """See `Plan.largest_batch`."""
        return ask(WhatIf._largest_batch, self)

    def cheapest_change(self) -> Changes:
        """See `Plan.cheapest_change`."""
        return ask(WhatIf._cheapest_change, self)

    def generation(self, new_tokens: int) -> Generation:
        """See `Plan.generation`."""
        return ask(WhatIf._generation, self, new_tokens)

    def sliders(self) -> Any:
        """See `Plan.sliders`."""
        from devwidget.ui.sliders import Sliders  # late: a plan needs no widgets

        return Sliders(ask(WhatIf.fitted, self))

    def fitted(self) -> Fitted:
        """Plans of several batches and lengths of texts, and what lies between them."""
        batch, length = self._size(0), self._size(1)
        if batch is None:
            raise _no_size()

        def plan(samples: int, tokens: int) -> Plan:
            def change(tensor: torch.Tensor) -> torch.Tensor:
                longer = tensor if length is None else resized(tensor, 1, length, tokens)
                return resized(longer, 0, batch, samples)

            return self.plan(change, Changed())

        return fit(Grid(plan, {(batch, length or 0): self.first}), batch, length)

    def _largest_batch(self) -> LargestBatch:
        size = self._size(0)
        if size is None:
            raise _no_size()
        found = self._largest(0, size)
        answer = found.answer()
        gpu = tightest(found.plans[answer or min(found.plans)])
        runs = tuple(PlannedSize(each, tightest(plan).on_card, plan.fits) for each, plan in found.plans.items())
        return LargestBatch(self.first.model, answer, gpu.on_card, gpu.capacity, runs)

    def _size(self, dim: int) -> int | None:
        parts = self.inputs.args, self.inputs.kwargs, self.inputs.target
        return None if next(step_sizes(parts), None) is not None else size_of(list(tensors_in(parts)), dim)

    def _largest(self, dim: int, size: int) -> Largest:
        """The largest size of a dimension that fits, or does up to what the step has in a text."""
        found = Largest(self._sized(dim, size, Changed()), {size: self.first})
        found.search()
        return found

    def _sized(self, dim: int, size: int, changed: Changed) -> Callable[[int], Plan]:
        return lambda after: self.plan(lambda tensor: resized(tensor, dim, size, after), changed)

    def _cheapest_change(self) -> Changes:
        found = [self._change(option) for option in options(self.model, self.asked)]
        if not self.first.fits:
            found += [*self._smaller_batch(), *self._shorter_text()]
        fitting = [change for change in found if change.fits]
        rest = sorted((change for change in found if not change.fits), key=lambda change: -change.saved)
        return Changes(self.first.model, tightest(self.first).on_card, (*fitting, *rest))

    def _generation(self, new_tokens: int) -> Generation:
        if not is_count(new_tokens):
            raise DevwidgetError(
                Message("cannot write {new_tokens} tokens", new_tokens=repr(new_tokens)),
                instead="plan.generation(new_tokens=512)",
            )
        return make_generation(self.model, self.inputs, self.asked, new_tokens)

    def _change(self, option: Option) -> Change:
        try:
            with warnings.catch_warnings(action="ignore"):  # of a step that the user has not written
                plan = self.plan(option.changed.cast, option.changed)
        except DevwidgetError as error:
            return Change(option.what, option.code, option.cost, 0, 0, False, error.what)
        return self._told(option.what, option.code, option.cost, plan)

    def _smaller_batch(self) -> Iterator[Change]:
        """The largest batch that fits, and the largest of which several fit whose gradients are added up for one step."""
        size, found = self._smaller(0)
        if found is None:
            return
        answer = found.answer()
        steps = Message("{count} batches in place of one", count=math.ceil(size / answer))
        yield self._told(Message("a batch of {size}", size=answer), "", steps, found.plans[answer])
        if "backward" not in self.first.phases:
            return
        plan = self._sized(0, size, Changed(accumulated=True))
        several = Largest(plan, {answer: plan(answer)})
        if not several.plans[answer].fits:
            several.search()
        if answer := several.answer():
            what = Message("gradients of batches of {size}, accumulated", size=answer)
            cost = Message("{count} forwards and backwards for one step", count=math.ceil(size / answer))
            yield self._told(what, "", cost, several.plans[answer])

    def _shorter_text(self) -> Iterator[Change]:
        size, found = self._smaller(1)
        if found is not None:
            answer = found.answer()
            cost = Message("what stands beyond in texts of {size}", size=size)
            yield self._told(Message("a text of {size}", size=answer), "", cost, found.plans[answer])

    def _smaller(self, dim: int) -> tuple[int, Largest | None]:
        """The size of a dimension, and the largest that fits in place of it if one does."""
        size = self._size(dim)
        if size is None:
            return 0, None
        try:
            found = self._largest(dim, size)
        except DevwidgetError:  # a model for texts of one length, for instance: there is nothing to propose
            return size, None
        return size, found if found.answer() else None

    def _told(self, what: str, code: str, cost: str, plan: Plan) -> Change:
        taken = tightest(plan).on_card
        return Change(what, code, cost, taken, tightest(self.first).on_card - taken, plan.fits)


def _no_size() -> DevwidgetError:
    why = Message("it is packed, or holds no tensor with a dimension")
    return DevwidgetError(Message("the batch has no size to be changed"), why=why)


def is_count(value: object) -> bool:
    """A whole number above zero."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
