"""A watched run in the panel: with its live model, or alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from devwidget.extras.watch.page import run_head, watched_content
from devwidget.extras.watch.records.run import RecordedStep, WatchedRun
from devwidget.extras.watch.watch import Watch, find_run
from devwidget.language.speaking import said, say
from devwidget.panel.actions import PanelActions, TraceRequest
from devwidget.panel.panel import DeviceWidget
from devwidget.panel.questions import read_field
from devwidget.panel.sections import ModelOpener, Section, opens_panel, section
from devwidget.records.errors import DevwidgetError, UnknownNameError
from devwidget.records.schema.message import Message
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.page.assets import files_of_extra

TAB = "Watch"


@section
class WatchTab(Section):
    """The tab Watch: the last watched run of the model, or a run that was watched elsewhere."""

    name = "watched"
    scripts = files_of_extra("watch", "watch.js")
    methods = ("show_recorded",)

    def __init__(self, panel: DeviceWidget) -> None:
        super().__init__(panel)
        self._elsewhere: WatchedRun | None = None
        self._last: WatchedRun | None = None  # of an object that the model's name was bound to
        self._shown: WatchedRun | None = None
        self._drawn, self._sampled_steps = 0, 0

    def show_run(self, run: WatchedRun) -> None:
        """Show a run that was watched earlier or elsewhere."""
        self._elsewhere = run
        self.follow()

    def show_recorded(self, step: int) -> None:
        """Show the recorded step of a number as if it had been traced here.

        Raises:
            UnknownNameError: If no such step was recorded.
        """
        with self.panel.lock:
            run, recorded = self._find_run(), dict[int, RecordedStep]()
            if run is not None:
                recorded = {each.number: each for each in run.recorded_steps}
            if step not in recorded:
                raise UnknownNameError(Message("step {step} was not recorded", step=step))
            self.panel.show_trace(recorded[step].trace)
            words = say("step {step} was recorded: {reason}", step=step, reason=said(recorded[step].reason))
            self.panel.show_status("done", "\n".join((words, self.panel.view.traced["summary"])))

    def follow(self) -> None:
        """Draw the run if it has new steps."""
        run = self._find_run()
        if run != self._shown:
            self._shown = run
            self.draw()
            self.panel.draw_head()

    def draw(self) -> None:
        """Draw the run."""
        self._drawn += 1
        self.send(watched_content(self._shown) | {"drawn": self._drawn})

    def sample(self) -> None:
        """Draw a run while a cell runs; the page ignores it once the end of the cell has drawn it."""
        run = self._find_run()
        if run is not None and run.steps.total != self._sampled_steps:
            self._sampled_steps = run.steps.total
            self.send_live(watched_content(run) | {"over": self._drawn})

    def make_head(self) -> dict[str, Any]:
        """Return the header of a model that does not exist in this process."""
        if self._shown is None or len(self.panel.table):
            return {}
        return run_head(self._shown)

    def answer_question(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Show the recorded step that the page asks for."""
        if message.get("ask") != "recorded":
            return None
        self.show_recorded(read_field(message, "step", int, -1))
        return {}

    def _find_run(self) -> WatchedRun | None:
        if self._elsewhere is not None:
            return self._elsewhere
        model = self.panel.actions.model()
        run = find_run(model) if model is not None else None
        if run is None:
            return self._note_other_model(self._last)
        self._last = run
        return run

    def _note_other_model(self, run: WatchedRun | None) -> WatchedRun | None:
        """Note that the run belongs to the object that the name had before."""
        actions = self.panel.actions
        name = actions.name()
        if run is None or not name or actions.model() is None:
            return run
        note = Message(
            "`{name}` was bound to a new object after this run. `{line}` watches the new one",
            name=name,
            line=f"%devwidget watch {name}",
        )
        return replace(run, not_checked=(*run.not_checked, note))


@opens_panel(Watch)
def open_watch(watch: Watch, open_model: ModelOpener) -> DeviceWidget:
    """Open the panel of a live run: that of its model, if the model exists."""
    if watch.model is None:
        return open_run(watch.result, open_model)
    panel: DeviceWidget = open_model(watch.model, watch.optimizer, TAB)
    return panel


@opens_panel(WatchedRun)
def open_run(run: WatchedRun, open_model: ModelOpener) -> DeviceWidget:
    """Open the panel of a run that was watched earlier or elsewhere."""
    panel = DeviceWidget(PanelActions(lambda: Snapshot(()), _refuse_trace, tuple, tuple), opens=TAB)
    panel.find_section(WatchTab).show_run(run)
    return panel


def _refuse_trace(request: TraceRequest, progress: Callable[[str], None]) -> Trace:
    raise DevwidgetError(Message("this panel shows a run and has no model to trace"), instead="devwidget.show(model, batch)")
