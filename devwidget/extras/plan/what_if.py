"""Questions about the step of a plan: each answer is a plan that was run."""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import nn

from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import replace_tensors, tensors_in
from devwidget.capture.validation import refuse_counts
from devwidget.extras.plan.changes import Changed, find_batch_size, list_options, resize_batch
from devwidget.extras.plan.child_process import ask_child
from devwidget.extras.plan.generation import make_generation
from devwidget.extras.plan.loops import MOST_ACCUMULATED
from devwidget.extras.plan.on_cards import list_uses, plan_row, try_card
from devwidget.extras.plan.placement import find_step_sizes
from devwidget.extras.plan.questions import Question, answer_at_once, answer_in_pieces, rank_tried, try_option
from devwidget.extras.plan.records.answers import AskedSize, Changes, Generation, LargestBatch, OnCards, Tried
from devwidget.extras.plan.records.plan import Plan, may_be_asked
from devwidget.extras.plan.sizes import WantSize, largest_fitting, least_rooms, plan_sizes, search_largest
from devwidget.gpus.card_models import CARDS, find_card
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message

Answer = TypeVar("Answer")


@dataclass
class WhatIf:
    """The step of a plan, to be planned again with something changed. Questions are answered where GPUs can be simulated.

    Attributes:
        model: as it was given; it is kept as long as the plan is.
        inputs: the arguments of its call.
        asked: the other arguments of the plan.
        first: the plan itself.
        again: plans a step.
        has_gradients: whether autograd recorded when it was planned; the step of a question is the same.
        answers: what was asked so far, the last of each kind.
        tried: the same step with other settings, each a plan that can be asked itself.
    """

    model: nn.Module
    inputs: Arguments
    asked: dict[str, Any]
    first: Plan
    again: Callable[[nn.Module, Arguments, dict[str, Any], Changed], Plan]
    has_gradients: bool = field(default_factory=torch.is_grad_enabled)
    answers: dict[str, Any] = field(default_factory=dict)
    tried: dict[AskedSize, Plan] = field(default_factory=dict)

    def ask(self, question: str, *about: Any) -> Any:
        """Answer one of `QUESTIONS` at once."""
        return self._keep(ask_child(WhatIf._answer, self, question, *about))

    def _answer(self, question: str, *about: Any) -> Any:
        return answer_at_once(QUESTIONS[question](self, *about), self.plan)

    def ask_between_cells(self, question: str) -> Iterator[int]:
        """Answer one of `QUESTIONS` in pieces of one plan each, after which it yields their count; `answers` has the answer."""
        self._keep((yield from answer_in_pieces(QUESTIONS[question](self), self._plan_quietly)))

    def plan_between_cells(self, setting: AskedSize) -> Iterator[int]:
        """Plan another setting in the same way, and leave the plan in `tried`."""
        given = {"card": setting.card or None, "memory": list(setting.memory) or None}
        others = {"others": bool(self.first.other_loops)}
        changed = Changed(asked=given | others, batch=setting.batch, length=setting.length)
        plan = yield from answer_in_pieces(_plan_one(changed), self._plan_quietly)
        inputs, asked = self._make_arguments(changed), {**self.asked, **given}
        self.tried[setting] = may_be_asked(plan, replace(self, inputs=inputs, asked=asked, first=plan, answers={}, tried={}))

    def _keep(self, answer: Answer, kind: str = "") -> Answer:
        self.answers[f"{type(answer).__name__} {kind}"] = answer
        return answer

    def plan(self, changed: Changed) -> Plan:
        """Plan the step again, with something changed."""
        has_gradients = self.has_gradients and not changed.is_inference
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.set_grad_enabled(has_gradients))
            if replace(changed, batch=None, length=None) != Changed():
                # Of a step that the user has not written.
                stack.enter_context(warnings.catch_warnings(action="ignore"))
            return self.again(self.model, self._make_arguments(changed), {**self.asked, **changed.asked}, changed)

    def _plan_quietly(self, changed: Changed) -> Plan:
        """Plan a step that no cell has asked for: what the model prints or warns of belongs to none."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), warnings.catch_warnings(action="ignore"):
            return ask_child(WhatIf.plan, self, changed)

    def _make_arguments(self, changed: Changed) -> Arguments:
        batch, length = self.batch, self.length

        def change_tensor(tensor: torch.Tensor) -> torch.Tensor:
            if length and changed.length is not None:
                tensor = resize_batch(tensor, 1, length, changed.length)
            if batch and changed.batch is not None:
                tensor = resize_batch(tensor, 0, batch, changed.batch)
            return changed.cast_floats(tensor)

        kwargs, target = self.inputs.kwargs, self.inputs.target
        if changed.is_inference:
            kwargs, target = {name: value for name, value in kwargs.items() if name != "labels"}, None
        return Arguments(*(replace_tensors(part, change_tensor) for part in (self.inputs.args, kwargs, target)))

    @property
    def names(self) -> Collection[str]:
        """The names of `QUESTIONS`."""
        return QUESTIONS.keys()

    @property
    def batch(self) -> int | None:
        """Samples of the step; None where the batch has no size."""
        return self._find_size(0)

    @property
    def length(self) -> int | None:
        """Tokens of each text; None where there is no text."""
        return self._find_size(1)

    def _find_size(self, dim: int) -> int | None:
        parts = self.inputs.args, self.inputs.kwargs, self.inputs.target
        if next(find_step_sizes(parts), None) is not None:
            return None
        return find_batch_size(list(tensors_in(parts)), dim)

    @property
    def setting(self) -> AskedSize:
        """That of the plan."""
        card = self.asked["card"] or ""
        memory = () if card else tuple(device.capacity for device in self.first.devices)
        return AskedSize(self.batch or 0, self.length or 0, find_card(card).name if card else "", memory)

    @property
    def cards(self) -> tuple[str, ...]:
        """Names of all kinds of cards that are known."""
        return tuple(card.name for card in CARDS.values())

    def generation(self, new_tokens: int, cache: str, num_beams: int) -> Generation:
        """See `Plan.generation`."""
        refuse_counts(new_tokens=new_tokens, num_beams=num_beams)
        found = ask_child(make_generation, self.model, self.inputs, self.asked, new_tokens, cache, num_beams)
        return self._keep(found, f"{cache} {num_beams}")

    def sliders(self) -> Any:
        """See `Plan.sliders`."""
        from devwidget.extras.plan.screen.plan_panel import PlanWidget  # late: a plan needs no widgets

        self.ask("sizes")
        return PlanWidget(may_be_asked(self.first, self))

    def show_live(self) -> None:
        """Show the page of the plan as a widget."""
        from devwidget.extras.plan.screen.plan_panel import PlanWidget  # late: a plan needs no widgets

        PlanWidget.show_live(may_be_asked(self.first, self))


def _plan_one(changed: Changed) -> Question[Plan]:
    return (yield changed)


def _want_batch(size: int) -> Changed:
    return Changed(batch=size)


def _want_length(size: int) -> Changed:
    return Changed(length=size)


def _find_largest_batch(step: WhatIf) -> Question[LargestBatch]:
    plans = {_require_batch(step).batch: step.first}
    if (yield from search_largest(plans, _want_batch)):
        yield from search_largest(plans, _want_batch, least_rooms)
    tried = (Tried("", plan.room, setting=replace(step.setting, batch=size)) for size, plan in plans.items())
    return LargestBatch(step.first.model, tuple(tried))


def _require_batch(step: WhatIf) -> AskedSize:
    setting = step.setting
    if not setting.batch:
        why = Message("it is packed, or holds no tensor with a dimension")
        raise DevwidgetError(Message("the size of the batch cannot be changed"), why=why)
    return setting


def _rank_changes(step: WhatIf) -> Question[Changes]:
    found = []
    for option in list_options(step.model, step.asked):
        found.append((yield from try_option(option, step.first.room.capacity)))
    if not step.first.fits:
        found += yield from _try_smaller_batch(step)
        found += yield from _try_shorter_text(step)
    return Changes(step.first.model, tuple(sorted(found, key=rank_tried)), step.first.room)


def _try_smaller_batch(step: WhatIf) -> Question[list[Tried]]:
    """Plan the largest batch that fits, and the largest that fits when gradients of several are added up."""
    found: list[Tried] = []
    size = step.batch or 0
    plans = yield from _plan_smaller(step.first, size, _want_batch)
    for each in (yield from _choose_sizes(plans, _want_batch)):
        cost = Message("{count} batches instead of one", count=math.ceil(size / each))
        found.append(Tried(Message("a batch of {size}", size=each), plans[each].room, cost=cost))
    loop, largest = step.asked["loop"], largest_fitting(plans)
    if not largest or "backward" not in step.first.phases or loop.is_own or loop.accumulate > 1:
        return found
    accumulated = {"loop": replace(loop, accumulate=MOST_ACCUMULATED)}

    def want_several(each: int) -> Changed:
        return Changed(asked=accumulated, batch=each)

    several = {largest: (yield want_several(largest))}
    if not several[largest].fits:
        yield from search_largest(several, want_several)
    for each in (yield from _choose_sizes(several, want_several)):
        what = Message("gradients of batches of {size}, accumulated", size=each)
        cost = Message("{count} forwards and backwards for one step", count=math.ceil(size / each))
        found.append(Tried(what, several[each].room, cost=cost))
    return found


def _try_shorter_text(step: WhatIf) -> Question[list[Tried]]:
    found: list[Tried] = []
    size = step.length or 0
    plans = yield from _plan_smaller(step.first, size, _want_length)
    for each in (yield from _choose_sizes(plans, _want_length)):
        cost = Message("the rest of each text after {size}", size=size)
        found.append(Tried(Message("a text of {size}", size=each), plans[each].room, cost=cost))
    return found


def _plan_smaller(first: Plan, size: int, want: WantSize) -> Question[dict[int, Plan]]:
    """Plan a step in sizes until the largest that fits is known; of a step without a size nothing is planned."""
    if not size:
        return {}
    plans = {size: first}
    try:
        yield from search_largest(plans, want)
    except DevwidgetError:
        # A model for texts of one length, for instance: there is nothing to propose.
        return {}
    return plans


def _choose_sizes(plans: dict[int, Plan], want: WantSize) -> Question[list[int]]:
    """Return the largest size that fits; where that is by less than plans were off, first the largest that fits by more."""
    largest = largest_fitting(plans)
    if not largest:
        return []
    if plans[largest].fit == "fits":
        return [largest]
    safe = yield from search_largest(plans, want, least_rooms)
    return [size for size in (safe, largest) if size]


def _try_cards(step: WhatIf, names: tuple[str, ...] = (), also: Sequence[str] | None = None) -> Question[OnCards]:
    """Plan the step on cards; without `also`, with everything else that can be planned."""
    uses = list_uses(step.model, step.asked, step.first.phases, also)
    cards = sorted([find_card(name) for name in names] or CARDS.values(), key=lambda card: card.memory_bytes)
    settings = [replace(step.setting, card=card.name, memory=()) for card in cards]
    plain, rows = [], []
    for setting in settings:
        if setting == step.setting:
            plain.append(Tried("", step.first.room, setting=setting))
        else:
            plain.append((yield from try_card(uses[0].tries[0], setting)))
    for use in uses:
        rows.append((yield from plan_row(use, settings, plain if use is uses[0] else ())))
    return OnCards(step.first.model, tuple(plain), step.asked["gpus"], tuple(rows) if len(rows) > 1 else ())


QUESTIONS: dict[str, Callable[..., Question[Any]]] = {
    "changes": _rank_changes,
    "batch": _find_largest_batch,
    "sizes": lambda step: plan_sizes(step.first, _require_batch(step)),
    "cards": _try_cards,
}
"""What a plan is asked for: `cheapest_change`, `largest_batch`, the grid of `sliders`, `on_cards`."""
