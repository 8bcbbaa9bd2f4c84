"""A question about a plan yields the steps that it wants planned, and returns its answer; here is what drives one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, TypeVar

from devwidget.extras.plan.changes import Changed
from devwidget.extras.plan.records.plan import Plan
from devwidget.records.errors import DevwidgetError


@dataclass(frozen=True)
class Wanted:
    """The step of a plan, to be planned again with something changed.

    Attributes:
        changed: of the model, or of how it runs.
        batch: samples; None for those that there are.
        length: tokens of each text; None for those that there are.
        is_inference: without labels and without gradients.
    """

    changed: Changed = field(default_factory=Changed)
    batch: int | None = None
    length: int | None = None
    is_inference: bool = False


Answer = TypeVar("Answer")
Question: TypeAlias = Generator[Wanted, Plan, Answer]
"""Where a step cannot be planned, DevwidgetError is raised at its `yield`."""
PlanWanted: TypeAlias = Callable[[Wanted], Plan]


def answer_at_once(question: Question[Answer], plan: PlanWanted) -> Answer:
    """Plan what a question wants until it is answered."""
    go_on: Callable[[], Wanted] = partial(next, question)
    while True:
        try:
            wanted = go_on()
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        go_on = _plan_next(question, wanted, plan)


def answer_in_pieces(question: Question[Answer], plan: PlanWanted) -> Generator[int, None, Answer]:
    """Do the same in pieces of one plan each; yield between two of them how many were run."""
    go_on: Callable[[], Wanted] = partial(next, question)
    count = 0
    while True:
        try:
            wanted = go_on()
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        if count:
            yield count
        go_on = _plan_next(question, wanted, plan)
        count += 1


def _plan_next(question: Question[Answer], wanted: Wanted, plan: PlanWanted) -> Callable[[], Wanted]:
    """Return how the question goes on: with a plan, or with why there is none."""
    try:
        found = plan(wanted)
    except DevwidgetError as error:
        return partial(question.throw, error)
    return partial(question.send, found)
