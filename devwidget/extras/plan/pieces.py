"""A question about a plan in pieces of one plan each, so that cells and clicks have their turn between two of them."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from devwidget.extras.plan.child_process import ask_child
from devwidget.extras.plan.records.plan import Plan
from devwidget.records.errors import DevwidgetError

PlanStep = Callable[..., Plan]


class PieceDone(BaseException):
    """Ends a piece; none of the planner's own handlers is for it."""


@dataclass
class Replay:
    """Plans a question that begins anew in each piece: what ran before is not run again, for it asks in the same order.

    Attributes:
        plan_step: plans one step.
        done: what came of each plan so far.
    """

    plan_step: PlanStep
    done: list[Plan | DevwidgetError] = field(default_factory=list)
    _at: int = 0
    _has_run: bool = False

    def begin_piece(self) -> None:
        """Begin anew, with one plan more to run."""
        self._at, self._has_run = 0, False

    def plan_next(self, *step: object) -> Plan:
        """Return or raise what came of this plan before; else run it, and end the piece at the next one."""
        if self._at == len(self.done):
            if self._has_run:
                raise PieceDone
            self._has_run = True
            self.done.append(self._run_quietly(step))
        found = self.done[self._at]
        self._at += 1
        if isinstance(found, DevwidgetError):
            raise found
        return found

    def _run_quietly(self, step: tuple[object, ...]) -> Plan | DevwidgetError:
        """Run a plan that no cell has asked for: what the model prints or warns of belongs to none."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), warnings.catch_warnings(action="ignore"):
            try:
                return ask_child(self.plan_step, *step)
            except DevwidgetError as error:
                return error


def run_in_pieces(plan_step: PlanStep, question: Callable[[PlanStep], object]) -> Iterator[int]:
    """Answer a question, which is given what plans a step; yields after each plan how many were run."""
    replay = Replay(plan_step)
    while True:
        replay.begin_piece()
        try:
            question(replay.plan_next)
        except PieceDone:
            yield len(replay.done)
        else:
            return
