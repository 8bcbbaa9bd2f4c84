"""Questions about a plan: each answer is a plan that was run, or stands on a fit through plans of several sizes."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import nn

from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import replace_tensors, tensors_in
from devwidget.extras.plan.changes import Changed, Option, find_batch_size, list_options, resize_batch
from devwidget.extras.plan.child_process import ask_child
from devwidget.extras.plan.generation import make_generation
from devwidget.extras.plan.loops import MOST_ACCUMULATED
from devwidget.extras.plan.on_cards import Try, drop_labels, list_uses, plan_row
from devwidget.extras.plan.pieces import run_in_pieces
from devwidget.extras.plan.placement import find_step_sizes
from devwidget.extras.plan.records.answers import (
    AskedSize,
    Changes,
    Fitted,
    FittedGpu,
    Generation,
    LargestBatch,
    OnCards,
    OneCard,
    PlannedChange,
    PlannedSize,
)
from devwidget.extras.plan.records.plan import PIECEWISE, DevicePlan, Plan, may_be_asked
from devwidget.gpus.virtual_machine import CARDS, find_card
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message

Answer = TypeVar("Answer")
# Enough for bisection where the need does not grow along a line.
MOST_PLANS = 24
# Times the largest size that fits: small ones grow along another line, where the optimizer's step is the peak.
MOST_AT_ONCE = 16


@dataclass
class LargestSearch:
    """A search along sizes.

    Attributes:
        plan: plans one size.
        plans: those that were planned; at least one to begin with.
        take: what a GPU takes, as far as the search goes: as it is planned, or the most that this stands for.
    """

    plan: Callable[[int], Plan]
    plans: dict[int, Plan]
    take: Callable[[DevicePlan], int] = lambda device: device.on_card

    def largest_fitting(self) -> int:
        """Return the largest size that is known to fit; 0 if none is."""
        return max(filter(self._is_fitting, self.plans), default=0)

    def plan_until_found(self) -> None:
        """Plan until the answer fits and the next larger size does not."""
        size, most = max(self.plans), len(self.plans) - 1 + MOST_PLANS
        second = 2 * size if self._is_fitting(size) else max(size // 2, 1)
        if len(self.plans) == 1 and second != size:
            self.plans[second] = self.plan(second)
        while len(self.plans) < most and (following := self._next_size()) is not None:
            self.plans[following] = self.plan(following)

    def leave_margin(self) -> LargestSearch:
        """Return a search among the same plans for what fits by more than plans were off on real cards."""
        return replace(self, take=lambda device: device.on_card_band[1])

    def _is_fitting(self, size: int) -> bool:
        return all(self.take(device) <= device.capacity for device in self.plans[size].devices)

    def _next_size(self) -> int | None:
        fitting = self.largest_fitting()
        failing = min((size for size in self.plans if not self._is_fitting(size)), default=None)
        if failing is None:
            before = max((size for size in self.plans if size < fitting), default=0)
            return min(max(self._meet_capacity(before, fitting), fitting + 1), MOST_AT_ONCE * fitting)
        if failing == fitting + 1:
            return None
        guess = self._meet_capacity(fitting, failing) if len(self.plans) % 3 else (fitting + failing) // 2
        return min(max(guess, fitting + 1), failing - 1)

    def _meet_capacity(self, low: int, high: int) -> int:
        """Return where the line through two plans first meets the capacity of a GPU; from nothing half the way."""
        if not low:
            return high // 2
        crossings = []
        for before, after in zip(self.plans[low].devices, self.plans[high].devices, strict=True):
            growth = (self.take(after) - self.take(before)) / (high - low)
            if growth > 0:
                crossings.append(math.floor(low + (before.capacity - self.take(before)) / growth))
        return min(crossings, default=2 * high)


# Share by which an estimate may be off; where it is more, sizes in between are run too, once.
MOST_OFF = 0.01
LARGEST = 4
"""Times the batch of the step that was asked for."""


@dataclass
class PlanGrid:
    """Plans by batch and length.

    Attributes:
        plan: plans one size.
        plans: those that were planned.
    """

    plan: Callable[[int, int], Plan]
    plans: dict[tuple[int, int], Plan] = field(default_factory=dict)

    def plan_at(self, batch: int, length: int) -> Plan:
        """Return the plan of one size."""
        if (batch, length) not in self.plans:
            self.plans[batch, length] = self.plan(batch, length)
        return self.plans[batch, length]

    def can_run(self, batch: int, length: int) -> bool:
        """Whether a step of that size runs; a model may be for texts of one length."""
        try:
            self.plan_at(batch, length)
        except DevwidgetError:
            return False
        return True

    def fit_through(self, batches: tuple[int, ...], lengths: tuple[int, ...], asked: tuple[int, int]) -> Fitted:
        """Fit through the plans of these sizes, and measure how far the fit is off in between."""
        plans = [self.plan_at(batch, length) for batch, length in itertools.product(batches, lengths)]
        gpus = tuple(
            FittedGpu(device.device, device.capacity, tuple(plan.devices[index].on_card for plan in plans))
            for index, device in enumerate(plans[0].devices)
        )
        found = Fitted(plans[0].model, plans[0].card, batches, lengths, asked, gpus)
        between = self._sizes_between(found)
        return replace(
            found, checked=len(between), off=max((self._measure_error(found, *size) for size in between), default=0.0)
        )

    def _sizes_between(self, fitted: Fitted) -> list[tuple[int, int]]:
        """Return a size within each interval of lengths, and of batches."""
        batches, lengths = _find_middles(fitted.batches), _find_middles(fitted.lengths)
        count = max(len(batches), len(lengths))
        pairs = zip(itertools.islice(itertools.cycle(batches or fitted.batches), count),
                    itertools.islice(itertools.cycle(lengths or fitted.lengths), count), strict=True)  # fmt: skip
        return list(dict.fromkeys(pairs))

    def _measure_error(self, fitted: Fitted, batch: int, length: int) -> float:
        taken = [device.on_card for device in self.plan_at(batch, length).devices]
        return max(abs(said - ran) / max(ran, 1) for said, ran in zip(fitted.estimate_at(batch, length), taken, strict=True))


def fit_plans(grid: PlanGrid, batch: int, length: int | None) -> Fitted:
    """Fit as many plans around a step as it takes to be close between them; `length` is None for what is no text."""
    batches = tuple(sorted({1, batch, 2 * batch, LARGEST * batch}))
    around = {length // 2, length, 2 * length} - {0} if length else {0}
    lengths = tuple(sorted(each for each in around if each == (length or 0) or grid.can_run(batch, each)))
    found = grid.fit_through(batches, lengths, (batch, length or 0))
    if found.off <= MOST_OFF:
        return found
    return grid.fit_through(_add_middles(batches), _add_middles(lengths), found.asked)


def _add_middles(knots: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*knots, *_find_middles(knots)}))


def _find_middles(knots: tuple[int, ...]) -> list[int]:
    return [middle for low, high in itertools.pairwise(knots) if low < (middle := (low + high) // 2) < high]


@dataclass
class WhatIf:
    """The step of a plan, to be planned again with something changed. Questions are answered where GPUs can be simulated.

    Attributes:
        model: as it was given; it is kept as long as the plan is.
        inputs: what it is called with.
        asked: the other arguments of the plan.
        first: the plan itself.
        again: plans a step.
        has_gradients: whether autograd recorded when it was planned; the step of a question is the same.
        answers: what was asked so far, the last of each kind.
        tried: plans of other settings.
    """

    model: nn.Module
    inputs: Arguments
    asked: dict[str, Any]
    first: Plan
    again: Callable[[nn.Module, Arguments, dict[str, Any], Changed], Plan]
    has_gradients: bool = field(default_factory=torch.is_grad_enabled)
    answers: dict[str, Any] = field(default_factory=dict)
    tried: dict[AskedSize, Plan] = field(default_factory=dict)

    def plan_changed(self, change: Callable[[torch.Tensor], torch.Tensor], changed: Changed) -> Plan:
        """Plan the step again, with the tensors of the batch and other things changed."""
        with torch.inference_mode(False), torch.set_grad_enabled(self.has_gradients):
            return self.again(self.model, self._change_batch(change), {**self.asked, **changed.asked}, changed)

    def _change_batch(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Arguments:
        parts = (self.inputs.args, self.inputs.kwargs, self.inputs.target)
        return Arguments(*(replace_tensors(part, change) for part in parts))

    def largest_batch(self) -> LargestBatch:
        """See `Plan.largest_batch`."""
        return self._keep(ask_child(WhatIf._find_largest_batch, self))

    def cheapest_change(self) -> Changes:
        """See `Plan.cheapest_change`."""
        return self._keep(ask_child(WhatIf._rank_changes, self))

    def on_cards(self, cards: tuple[str, ...], also: Sequence[str]) -> OnCards:
        """See `Plan.on_cards`."""
        return self._keep(ask_child(WhatIf._try_cards, self, cards, also))

    def _keep(self, answer: Answer, kind: str = "") -> Answer:
        self.answers[f"{type(answer).__name__} {kind}"] = answer
        return answer

    def generation(self, new_tokens: int, cache: str, num_beams: int) -> Generation:
        """See `Plan.generation`."""
        return self._keep(ask_child(WhatIf._plan_generation, self, new_tokens, cache, num_beams), f"{cache} {num_beams}")

    def sliders(self) -> Any:
        """See `Plan.sliders`."""
        from devwidget.extras.plan.screen.plan_panel import PlanWidget  # late: a plan needs no widgets

        self._keep(ask_child(WhatIf.fit_sizes, self))
        return PlanWidget(may_be_asked(self.first, self))

    def fit_sizes(self) -> Fitted:
        """Plan several batches and lengths of texts, and fit what lies between them."""
        batch, length = self._find_size(0), self._find_size(1)
        if batch is None:
            raise _refuse_no_size()

        def plan_size(samples: int, tokens: int) -> Plan:
            return self.plan_changed(lambda tensor: self._resize_tensor(tensor, samples, tokens), Changed())

        return fit_plans(PlanGrid(plan_size, {(batch, length or 0): self.first}), batch, length)

    def _resize_tensor(self, tensor: torch.Tensor, samples: int, tokens: int) -> torch.Tensor:
        batch, length = self._find_size(0), self._find_size(1)
        longer = resize_batch(tensor, 1, length, tokens) if length else tensor
        return resize_batch(longer, 0, batch, samples) if batch else longer

    @property
    def setting(self) -> AskedSize:
        """See `Questions`."""
        card = self.asked["card"] or ""
        memory = () if card else tuple(device.capacity for device in self.first.devices)
        return AskedSize(self._find_size(0) or 0, self._find_size(1) or 0, find_card(card).name if card else "", memory)

    @property
    def cards(self) -> tuple[str, ...]:
        """See `Questions`."""
        return tuple(card.name for card in CARDS.values())

    def ask_in_pieces(self, question: str) -> Iterator[int]:
        """See `Questions`."""
        return run_in_pieces(self.again, lambda again: self._keep(_PIECEWISE[question](replace(self, again=again))))

    def try_in_pieces(self, setting: AskedSize) -> Iterator[int]:
        """See `Questions`."""
        return run_in_pieces(self.again, lambda again: self._try_setting(setting, replace(self, again=again)))

    def _try_setting(self, setting: AskedSize, asked: WhatIf) -> None:
        """Plan another setting, and keep a plan that is asked about that."""

        def resize(tensor: torch.Tensor) -> torch.Tensor:
            return self._resize_tensor(tensor, setting.batch, setting.length)

        other: dict[str, Any] = {"card": setting.card or None, "memory": list(setting.memory) or None}
        has_others = bool(self.first.other_loops)
        plan = asked.plan_changed(resize, Changed(asked={**other, "others": has_others}))
        inputs, changed = self._change_batch(resize), {**self.asked, **other}
        self.tried[setting] = may_be_asked(plan, replace(self, inputs=inputs, asked=changed, first=plan, answers={}, tried={}))

    def show_live(self) -> None:
        """See `Questions`."""
        from devwidget.extras.plan.screen.plan_panel import show_plan  # late: a plan needs no widgets

        show_plan(may_be_asked(self.first, self))

    def _find_largest_batch(self) -> LargestBatch:
        size = self._find_size(0)
        if size is None:
            raise _refuse_no_size()
        found = self._search_largest(0, size)
        safe, answer = found.leave_margin(), found.largest_fitting()
        if answer:
            safe.plan_until_found()
        gpu = found.plans[answer or min(found.plans)].tightest
        runs = tuple(
            PlannedSize(each, plan.tightest.on_card, plan.fits, plan.fit == "fits by less")
            for each, plan in found.plans.items()
        )
        return LargestBatch(self.first.model, answer, gpu.on_card, gpu.capacity, runs, safe.largest_fitting())

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
        fitting = sorted((change for change in found if change.fits), key=lambda change: change.is_close)
        rest = sorted((change for change in found if not change.fits), key=lambda change: -change.saved)
        return Changes(self.first.model, self.first.tightest.on_card, (*fitting, *rest))

    def _try_cards(self, names: tuple[str, ...] = (), also: Sequence[str] | None = None) -> OnCards:
        """Plan the step on cards; without `also`, with all that can be planned beside it."""
        uses = list_uses(self.model, self.asked, self.first.phases, also)
        found = [find_card(name) for name in names] or list(CARDS.values())
        ordered = [card.name for card in sorted(found, key=lambda card: card.memory_bytes)]
        own = self.setting.card
        plain = tuple(
            _describe_card(name, self.first) if name == own else self._try_card(name, uses[0].tries[0]) for name in ordered
        )
        rows = [plan_row(use, ordered, self._try_card, plain if use is uses[0] else ()) for use in uses]
        return OnCards(self.first.model, self.asked["gpus"], plain, tuple(rows) if len(rows) > 1 else ())

    def _try_card(self, name: str, tried: Try) -> OneCard:
        """Plan the step on a card as a way to use the model has it."""
        changed = replace(tried.changed, asked={**tried.changed.asked, "card": name, "memory": None})
        asked = replace(self, inputs=drop_labels(self.inputs), has_gradients=False) if tried.is_inference else self
        try:
            # Of a step that the user has not written.
            with warnings.catch_warnings(action="ignore"):
                plan = asked.plan_changed(changed.cast_floats, changed)
        except DevwidgetError as error:
            return OneCard(name, 0, find_card(name).memory_bytes, False, problem=error.what, change=tried.what)
        return _describe_card(name, plan, tried.what)

    def _plan_generation(self, new_tokens: int, cache: str, num_beams: int) -> Generation:
        if not is_count(new_tokens):
            raise DevwidgetError(
                Message("cannot write {new_tokens} tokens", new_tokens=repr(new_tokens)),
                instead="plan.generation(new_tokens=512)",
            )
        if not is_count(num_beams):
            raise DevwidgetError(
                Message("cannot write in {num_beams} beams", num_beams=repr(num_beams)),
                instead="plan.generation(new_tokens=512, num_beams=4)",
            )
        return make_generation(self.model, self.inputs, self.asked, new_tokens, cache, num_beams)

    def _try_option(self, option: Option) -> PlannedChange:
        try:
            # Of a step that the user has not written.
            with warnings.catch_warnings(action="ignore"):
                plan = self.plan_changed(option.changed.cast_floats, option.changed)
        except DevwidgetError as error:
            return PlannedChange(option.what, option.code, option.cost, 0, 0, False, error.what)
        return self._describe_change(option.what, option.code, option.cost, plan)

    def _try_smaller_batch(self) -> Iterator[PlannedChange]:
        """Yield the largest batch that fits, and the largest that fits when gradients of several are added up."""
        size, found = self._search_smaller(0)
        if found is None:
            return
        for each in _list_answers(found):
            steps = Message("{count} batches in place of one", count=math.ceil(size / each))
            yield self._describe_change(Message("a batch of {size}", size=each), "", steps, found.plans[each])
        answer = found.largest_fitting()
        if "backward" not in self.first.phases:
            return
        if self.asked["loop"].is_own or self.asked["loop"].accumulate > 1:
            return
        several_batches = replace(self.asked["loop"], accumulate=MOST_ACCUMULATED)
        plan = self._make_planner(0, size, Changed(asked={"loop": several_batches}))
        several = LargestSearch(plan, {answer: plan(answer)})
        if not several.plans[answer].fits:
            several.plan_until_found()
        for each in _list_answers(several):
            what = Message("gradients of batches of {size}, accumulated", size=each)
            cost = Message("{count} forwards and backwards for one step", count=math.ceil(size / each))
            yield self._describe_change(what, "", cost, several.plans[each])

    def _try_shorter_text(self) -> Iterator[PlannedChange]:
        size, found = self._search_smaller(1)
        if found is None:
            return
        for each in _list_answers(found):
            cost = Message("what stands beyond in texts of {size}", size=size)
            yield self._describe_change(Message("a text of {size}", size=each), "", cost, found.plans[each])

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

    def _describe_change(self, what: str, code: str, cost: str, plan: Plan) -> PlannedChange:
        gpu = plan.tightest
        saved = self.first.tightest.on_card - gpu.on_card
        sizes = gpu.peak, gpu.cached, gpu.context, gpu.capacity
        return PlannedChange(what, code, cost, gpu.on_card, saved, plan.fits, "", plan.fit == "fits by less", *sizes)


_PIECEWISE: dict[str, Callable[[WhatIf], Any]] = dict(
    zip(PIECEWISE, (WhatIf._rank_changes, WhatIf._find_largest_batch, WhatIf.fit_sizes, WhatIf._try_cards), strict=True)
)


def _list_answers(found: LargestSearch) -> list[int]:
    """Return the largest size that fits; where that is by less than plans were off, first the largest that fits by more."""
    largest = found.largest_fitting()
    if not largest or found.plans[largest].fit == "fits":
        return [largest] if largest else []
    safe = found.leave_margin()
    safe.plan_until_found()
    return [size for size in (safe.largest_fitting(), largest) if size]


def _describe_card(name: str, plan: Plan, change: str = "") -> OneCard:
    gpu = plan.tightest
    return OneCard(name, gpu.on_card, gpu.capacity, plan.fits, plan.fit == "fits by less", change=change)


def _refuse_no_size() -> DevwidgetError:
    why = Message("it is packed, or holds no tensor with a dimension")
    return DevwidgetError(Message("the batch has no size to be changed"), why=why)


def is_count(value: object) -> bool:
    """Whether a value is a whole number above zero."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
