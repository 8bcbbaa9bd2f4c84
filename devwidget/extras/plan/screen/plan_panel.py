"""PlanWidget: the page of a plan with sliders; the plan for their values is run between cells, or shown if run before."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

from devwidget.extras.plan.page.draw_plan import draw_live_parts, plan_in_notebook
from devwidget.extras.plan.page.form import form_content, read_setting
from devwidget.extras.plan.page.sheet import STYLES
from devwidget.extras.plan.records.plan import Plan, may_be_asked, questions_of
from devwidget.language.speaking import both, say, say_count
from devwidget.panel.actions import MainThreadJobs
from devwidget.panel.displayed import Displayed
from devwidget.panel.questions import refusal_words
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message
from devwidget.report.page.assets import files_of_extra

PLAN = (
    "words.js", "base.js", "parts.js", "tabs.js", *files_of_extra("plan", "plan_form.js", "plan_widget.js"),
)  # fmt: skip
PLAN_STYLES = (*STYLES, *files_of_extra("plan", "plan_form.css"))


class PlanWidget(Displayed):
    """A plan that can be asked. The plan keeps its model; this keeps neither, only what is shown.

    Attributes:
        shown: the plan of what the sliders say, or said when the last one was run.
    """

    shows = Plan
    scripts, styles = PLAN, PLAN_STYLES

    def __init__(self, plan: Plan) -> None:
        questions = questions_of(plan)
        if questions is None:
            raise _nobody_to_ask()
        # Weak: a page that somebody has scrolled by must not keep a model alive.
        self._asked = weakref.ref(questions)
        self.setting = self._wanted = questions.setting
        self.jobs = _PieceJobs(self._tell_progress, self._tell_end)
        super().__init__(form={}, page={})

    @property
    def shown(self) -> Plan:
        """The plan that is shown, which can be asked; raise DevwidgetError if it was freed."""
        root = self._find_questions()
        return may_be_asked(root.first, root) if self.setting == root.setting else root.tried[self.setting]

    def draw(self) -> None:
        """Draw what is shown, with what was asked of it so far, and save it with the notebook."""
        if self._asked() is None:
            return
        shown = self.shown
        self._saved, self._text = plan_in_notebook(shown), str(shown)
        self.view.form = form_content(self._find_questions(), self.setting)
        self.view.page = {"setting": self.view.form["shown"], **draw_live_parts(shown)}
        self.save_again()

    def close(self) -> None:
        """Take the page off every notebook."""
        self.jobs.cancel()
        super().close()

    def __repr__(self) -> str:
        return self._text

    def _find_questions(self) -> Any:
        questions = self._asked()
        if questions is None:
            raise _nobody_to_ask()
        return questions

    def answer_question(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Show another setting, ask something of the plan, or cancel that."""
        if asked.get("ask") == "cancel":
            self.jobs.cancel()
        if asked.get("ask") == "question" and asked.get("question") in self._find_questions().names:
            shown = questions_of(self.shown)
            if shown is not None:
                self._wanted = self.setting
                self.jobs.start(shown.ask_between_cells(asked["question"]))
        if asked.get("ask") == "setting":
            self._show_setting(asked)
        return {}

    def _show_setting(self, asked: dict[str, Any]) -> None:
        """Show another setting, at once if it was planned before."""
        root, setting = self._find_questions(), read_setting(asked)
        if setting == root.setting or setting in root.tried:
            self.jobs.cancel()
            self.setting = self._wanted = setting
            self.draw()
            return
        self._wanted = setting
        self.jobs.start(root.plan_between_cells(setting))

    def _tell_progress(self, count: int) -> None:
        words = say("planning …")
        if count:
            words = say_count(*both("planning: {count} plan run", "planning: {count} plans run"), count)
        self.view.status = {"kind": "busy", "text": words}

    def _tell_end(self, error: BaseException | None) -> None:
        """Draw the result of a run; one that failed or was cancelled changes nothing."""
        if error is None:
            self.setting = self._wanted
            self.draw()
            self.view.status = {"kind": "done", "text": ""}
        elif isinstance(error, KeyboardInterrupt):
            self.view.status = {"kind": "cancelled", "text": say("cancelled; showing the previous plan")}
        else:
            self.view.status = {"kind": "refused", "text": refusal_words(error)}


def _nobody_to_ask() -> DevwidgetError:
    what = Message("this plan was loaded, made by hand, or freed: its model is not here")
    return DevwidgetError(what, instead=Message("keep what devwidget.plan(...) returns"))


PAUSE_SECONDS = 0.02
"""Seconds between two pieces, in which the kernel handles messages such as cells and clicks."""


class _PieceJobs:
    """Run a job in pieces on the main thread; cells and clicks run between them. A new job replaces the old one.

    Args:
        on_piece: Called with the result of each piece, and with 0 at the start.
        on_end: Called at the end of a job, with the exception that ended it, if any.
    """

    def __init__(self, on_piece: Callable[[int], None], on_end: Callable[[BaseException | None], None]) -> None:
        self._jobs, self._on_piece, self._on_end = MainThreadJobs(), on_piece, on_end
        self._pieces: Iterator[int] | None = None

    def start(self, pieces: Iterator[int]) -> None:
        is_scheduled, self._pieces = self._pieces is not None, pieces
        self._on_piece(0)
        if not is_scheduled:
            self._jobs.call_later(PAUSE_SECONDS, self._run_piece)

    def cancel(self) -> None:
        if self._pieces is not None:
            self._pieces = None
            if not self._jobs.cancel():
                self._on_end(KeyboardInterrupt())

    def _run_piece(self) -> None:
        self._jobs.submit(self._advance)
        if self._pieces is not None:
            self._jobs.call_later(PAUSE_SECONDS, self._run_piece)

    def _advance(self) -> None:
        pieces, error, count = self._pieces, None, 0
        if pieces is None:
            return
        try:
            count = next(pieces, 0)
        except BaseException as raised:  # also an interrupt: the page says what ended it
            error = raised
        if self._pieces is not pieces:  # another job has come meanwhile, or none is wanted
            if self._pieces is None:
                self._on_end(error or KeyboardInterrupt())
        elif count:
            self._on_piece(count)
        else:
            self._pieces = None
            self._on_end(error)
