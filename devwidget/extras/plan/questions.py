"""A question about a plan yields the steps that it wants planned, and returns its answer; here is what drives one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TypeAlias, TypeVar

from devwidget.extras.plan.changes import Changed, Option
from devwidget.extras.plan.evidence.compared import Fit
from devwidget.extras.plan.records.answers import AskedSize, Room, Tried
from devwidget.extras.plan.records.plan import Plan
from devwidget.records.errors import DevwidgetError

Answer = TypeVar("Answer")
Question: TypeAlias = Generator[Changed, Plan, Answer]
"""Where a step cannot be planned, DevwidgetError is raised at its `yield`."""
PlanChanged: TypeAlias = Callable[[Changed], Plan]


def answer_at_once(question: Question[Answer], plan: PlanChanged) -> Answer:
    """Plan what a question wants until it is answered."""
    pieces = answer_in_pieces(question, plan)
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            answer: Answer = end.value
            return answer


def answer_in_pieces(question: Question[Answer], plan: PlanChanged) -> Generator[int, None, Answer]:
    """Do the same in pieces of one plan each; yield between two of them how many were run."""
    go_on: Callable[[], Changed] = partial(next, question)
    count = 0
    while True:
        try:
            wanted = go_on()
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        if count:
            yield count
        try:
            go_on = partial(question.send, plan(wanted))
        except DevwidgetError as error:
            go_on = partial(question.throw, error)
        count += 1


ANY_SIZE = AskedSize()


def try_option(option: Option, capacity: int, setting: AskedSize = ANY_SIZE) -> Question[Tried]:
    """Plan a step with a change; `capacity` is that of a GPU on which it fails."""
    words = option.code, option.cost, setting
    try:
        plan = yield option.changed
    except DevwidgetError as error:
        return Tried(option.what, Room(capacity, 0, "does not fit"), error.what, *words)
    return Tried(option.what, plan.room, "", *words)


_ORDER: dict[Fit, int] = {"fits": 0, "fits by less": 1, "does not fit": 2}


def rank_tried(tried: Tried) -> tuple[bool, int, int]:
    """Rank a plan that was tried: what fits by more first, in its order; of what does not fit the smallest."""
    return bool(tried.problem), _ORDER[tried.fit], 0 if tried.fits else tried.on_card
