"""PlanWidget: the page of a plan with sliders; the plan for their values is run between cells, or shown if run before."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from devwidget.extras.plan.page.draw_plan import draw_live_parts, plan_in_notebook
from devwidget.extras.plan.page.form import form_content, read_setting
from devwidget.extras.plan.page.sheet import STYLES
from devwidget.extras.plan.records.answers import AskedSize
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
PAUSE_SECONDS = 0.02
"""Seconds between two pieces of a run, in which the kernel handles messages such as cells and clicks."""
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
        self.jobs = MainThreadJobs()
        self._pieces: Iterator[int] | None = None  # of what runs
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
        self._cancel()
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
        match asked.get("ask"):
            case "cancel":
                self._cancel()
            case "setting":
                self._show_setting(read_setting(asked))
            case "question" if asked.get("question") in self._find_questions().names:
                shown = questions_of(self.shown)
                if shown is not None:
                    self._start(shown.ask_between_cells(asked["question"]), self.setting)
        return {}

    def _show_setting(self, setting: AskedSize) -> None:
        root = self._find_questions()
        if setting != root.setting and setting not in root.tried:
            self._start(root.plan_between_cells(setting), setting)
            return
        self._cancel()
        self.setting = setting
        self.draw()

    def _start(self, pieces: Iterator[int], wanted: AskedSize) -> None:
        """Run in pieces on the main thread; cells and clicks run between them. What runs is given up."""
        is_scheduled, self._pieces, self._wanted = self._pieces is not None, pieces, wanted
        self._tell_progress(0)
        if not is_scheduled:
            self.jobs.call_later(PAUSE_SECONDS, self._run_piece)

    def _cancel(self) -> None:
        if self._pieces is not None:
            self._pieces = None
            if not self.jobs.cancel():
                self._tell_end(KeyboardInterrupt())

    def _run_piece(self) -> None:
        self.jobs.submit(self._advance)
        if self._pieces is not None:
            self.jobs.call_later(PAUSE_SECONDS, self._run_piece)

    def _advance(self) -> None:
        pieces, error, count = self._pieces, None, 0
        if pieces is None:
            return
        try:
            count = next(pieces, 0)
        except BaseException as raised:  # also an interrupt: the page says what ended it
            error = raised
        if self._pieces is not pieces:  # others have come meanwhile, or none are wanted
            if self._pieces is None:
                self._tell_end(error or KeyboardInterrupt())
        elif count:
            self._tell_progress(count)
        else:
            self._pieces = None
            self._tell_end(error)

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
