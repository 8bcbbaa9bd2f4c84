"""DeviceWidget: the panel that `devwidget.show` displays."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from traitlets import Instance, Unicode, observe, validate

from devwidget.language.speaking import said, say
from devwidget.panel import refresh
from devwidget.panel.actions import GIVEN, AppliedFix, CellEdit, MainThreadJobs, PanelActions, TraceRequest
from devwidget.panel.bridge import Channel, refer_to, shared_plotly
from devwidget.panel.displayed import Displayed
from devwidget.panel.questions import answer_panel, collect_printed
from devwidget.panel.sections import Section, load_sections, section_scripts
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError, UnknownNameError, error_text, nearest
from devwidget.records.finding import Finding, Fix
from devwidget.records.loading.saved_notebooks import find_trace, pack_trace
from devwidget.records.memory import DeviceMemory
from devwidget.records.schema.message import Message
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.page.assets import PANEL_STYLES, add_to_panel
from devwidget.report.page.content import (
    Content,
    applied_content,
    compared_content,
    detail_content,
    devices_content,
    head_content,
    marks_content,
    memory_content,
    traced_content,
    tree_content,
)
from devwidget.report.page.html import panel_html, panel_text
from devwidget.report.style.safe_text import safe_block
from devwidget.report.style.words import code_word
from devwidget.report.text.advice import StepNames
from devwidget.views.memory import Held, categorize_memory, held_by
from devwidget.views.overlay import Overlay, make_overlay
from devwidget.views.placement import PlacementTable, tabulate_snapshot

S = TypeVar("S", bound=Section)
_DRAWN = ("head", "inputs", "table", "marks", "memory", "traced", "devices", "compared", "applied", "chosen")


class DeviceWidget(Displayed):
    """A panel; other widgets can contain it. It keeps a weak reference to the model, and only numbers and texts.

    Extras add `sections`, and some add methods: `propose`, `show_ranks`, `show_recorded`.

    Attributes:
        snapshot: The last snapshot; None if the model no longer existed at the first.
        trace: The last trace, None before the first; `observe` reports new ones.
        kept: The trace that later ones are compared with, None if there is none.
        selected: Path of the selected module, "" for the root; None before a selection. `observe` reports new ones, and
            assigning it selects the module on the page.
        sections: What extras show in the panel.
    """

    trace = Instance(Trace, allow_none=True)
    selected = Unicode(None, allow_none=True)
    shows = PanelActions
    styles = PANEL_STYLES

    def __init__(self, actions: PanelActions, opens: str = "") -> None:
        self.snapshot: Snapshot | None = None
        self.kept: Trace | None = None
        self.table, self.marks = PlacementTable(), Overlay()
        self.actions, self._request = actions, actions.request
        self._held: Held = {}
        self._refused: DevwidgetError | None = None  # why nothing was traced when that was asked for last
        self._outdated = ""  # why the trace that is shown is of an earlier state of the model
        self._prepared: AppliedFix | None = None  # by the page's question, until it has written the cells
        self._applied: list[AppliedOnce] = []  # the last one last
        self._is_rebound = False  # the last cell has bound the model's name to another object
        self._is_replaced = False  # by a newer panel, which the page shows
        self._continues = False  # the last cell has shown it in place of an earlier panel
        self._has_traced = False  # on request, so that the next object is traced too
        self._again = ""  # why the trace that is shown was made without a request
        self._cell = ""  # which has displayed it, by the id of the notebook
        self._was_shown = False
        self._shown_choices = 0  # how often code has led the page to a row
        self._page_choice: str | None = None
        self._drawn, self._sampled = 0, False  # how often the bars were drawn; whether a running cell has drawn over them
        self.lock = threading.RLock()
        self.jobs = MainThreadJobs()
        self.scripts = add_to_panel(section_scripts())
        self.sections: tuple[Section, ...] = tuple(kind(self) for kind in load_sections())
        for each in self.sections:
            for name in each.methods:
                setattr(self, name, getattr(each, name))
        drawn = dict.fromkeys((*_DRAWN, *(each.name for each in self.sections)), Content())
        self.live: Any = Channel(memory={}, **{each.name: {} for each in self.sections})
        # Pages count views only if this begins as a number.
        super().__init__(
            _view_count=0, live=refer_to(self.live), plotly=refer_to(shared_plotly()), opens=opens, printed="", gone=False,
            itself="", **drawn,
        )  # fmt: skip
        self.view.itself = refer_to(self.view)
        self.refresh()
        refresh.watch_panel(self)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of the last trace, worst first."""
        return self.trace.findings if self.trace is not None else ()

    def draw(self) -> None:
        """Draw everything that the page shows."""
        with self.lock:
            if self.snapshot is not None:
                self._draw_tree(self.snapshot)
                self._draw_memory()
            self._draw_compared()
            self._draw_applied()
            for section in self.sections:
                section.draw()
            if self._refused is not None:
                self._show_refusal(str(self._refused))
            elif self.trace is not None:
                self._show_result(self.trace)
            self.save_again()

    def select(self, path: str) -> None:
        """Select a module on the page, as a click on its row does.

        Args:
            path: Path of the module, or of a tensor in a plain attribute, as in the table; "" for the root.

        Raises:
            UnknownNameError: If the table has no such row.
        """
        if path == self.selected:
            self._show_choice(path)
        self.selected = path

    def choose_row(self, row: int) -> Content | None:
        """Select the row that was chosen on the page; return what opens below it, None if the table has no such row."""
        if self.snapshot is None or not 0 <= row < len(self.table):
            return None
        self._page_choice = self.selected = self.table.paths[row]
        return detail_content(self.snapshot, self.table, row)

    @observe("selected")
    def _lead_page(self, change: dict[str, Any]) -> None:
        if change["new"] not in (None, self._page_choice):
            self._show_choice(change["new"])
        self._page_choice = None

    def _show_choice(self, path: str) -> None:
        self._shown_choices += 1
        self.view.chosen = {"path": path, "at": self._shown_choices}

    @validate("selected")
    def _check_path(self, proposal: Any) -> Any:
        path = proposal["value"]
        if path is not None and path not in self.table.paths:
            hint = nearest(path, self.table.paths)
            raise UnknownNameError(Message("the table has no row {path}{hint}", path=repr(path), hint=hint))
        return path

    def keep(self) -> None:
        """Keep the last trace; later ones are compared with it."""
        with self.lock:
            self.kept = self.trace
            self._draw_compared()

    def find_section(self, kind: type[S]) -> S:
        """Return the section of a class."""
        return next(each for each in self.sections if isinstance(each, kind))

    def answer_question(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answer a question of the page."""
        return answer_panel(self, message)

    def show_printed(self, text: str) -> None:
        """Show the output of the traced code."""
        self.view.printed = safe_block(text)

    def refresh(self) -> None:
        """Read the model again and redraw what has changed; shows it if the model no longer exists."""
        with self.lock:
            if self._read_again():
                self.save_again()

    def _read_again(self) -> bool:
        snapshot = self.actions.snapshot()
        self.view.gone = snapshot is None
        self.view.inputs = asdict(self._request) | {"names": list(self.actions.names())}
        is_other = self._draw_snapshot(snapshot)
        for section in self.sections:
            section.follow()
        return is_other

    def _draw_snapshot(self, snapshot: Snapshot | None) -> bool:
        """Return whether anything but memory has changed."""
        if snapshot is None or (snapshot == self.snapshot and not self._sampled):
            return False
        before, self.snapshot = self.snapshot, snapshot
        is_other = before is None or replace(before, memory=snapshot.memory) != snapshot
        if is_other:
            self._held = held_by(snapshot)
            self._draw_tree(snapshot)
        self._draw_memory()
        if before is not None and self.trace is not None and _tensor_devices(before) != _tensor_devices(snapshot):
            self._outdated = self._outdated or Message("The model was moved after this trace. Press Trace batch.")
            self._show_result(self.trace)
        return is_other

    def run_trace(self, request: TraceRequest | None = None) -> Trace:
        """Trace one step, as the button does; without a request, with the last inputs.

        Raises:
            DevwidgetError: If there is no batch, or it does not fit. The panel shows it too.
        """
        with self.lock:
            chosen = request or self._request
            trace = self._trace_step(chosen)
            self._request, self._has_traced, self._again = chosen, True, ""
            if not self._waits_for_trace:
                self._forget_applied()
            self._show_traced(trace)
            return trace

    @property
    def _last_applied(self) -> AppliedOnce | None:
        return self._applied[-1] if self._applied else None

    @property
    def _waits_for_trace(self) -> bool:
        """Whether the last applied fix is live but not traced yet."""
        last = self._last_applied
        return last is not None and last.works == "now" and not last.is_traced

    def _trace_step(self, request: TraceRequest) -> Trace:
        """Trace. If that fails, the panel keeps its trace and the state of the applied fix."""
        with self._show_busy(say("tracing …")):
            return self.actions.trace(request, self._show_progress)

    def _show_traced(self, trace: Trace) -> None:
        """Show a trace of the current model, which includes the applied fix."""
        is_applied = self._waits_for_trace
        self.show_trace(trace)
        if is_applied:
            self._applied[-1].is_traced = True
            self._draw_applied()

    def prepare_fix(self, finding: int, fix: int) -> AppliedFix:
        """Return what the page must write to apply one fix of the last trace.

        Raises:
            DevwidgetError: If there is no such fix, or the source has changed.
        """
        self._prepared = self.actions.apply(_choose_fix(self.trace, finding, fix)[1])
        return self._prepared

    def apply_fix(self) -> None:
        """Apply the prepared fix after the page has written its cells, and trace again where that shows it.

        Raises:
            DevwidgetError: If a file cannot be written, or as `run_trace`. The panel shows it too.
        """
        with self.lock:
            prepared, before, self._prepared = self._prepared, self.trace, None
            if prepared is None:
                raise DevwidgetError(Message("no fix is ready to apply"), instead=Message("press Trace batch"))
            with self._show_busy(say("applying the fix …")):
                prepared.take_effect()
            awaited = prepared.texts if prepared.works == "cell" else ()
            self._applied.append(AppliedOnce(prepared, before, self._outdated, prepared.works, prepared.cells, awaited))
            self.kept = before
            self._draw_applied()
            if prepared.works == "now":
                self._show_traced(self._trace_step(self._request))
            elif before is not None:
                self._show_result(before)

    def undo_fix(self) -> None:
        """Undo the last applied fix after the page has undone its cells, and show the trace before it.

        Raises:
            DevwidgetError: If a file has changed since. The panel shows it too.
        """
        with self.lock:
            last = self._last_applied
            if last is None:
                return
            with self._show_busy(say("undoing the fix …")):
                last.applied.take_back()
            self._forget_applied(self._applied[:-1])
            if last.before is not None:
                self.show_trace(last.before, outdated=last.outdated)

    def _forget_applied(self, still: Sequence[AppliedOnce] = ()) -> None:
        """Forget the applied fixes except `still`, and the traces before them."""
        if self._applied:
            self._applied, self.kept = list(still), still[-1].before if still else None
            self._draw_applied()
            self._draw_compared()

    def _draw_applied(self) -> None:
        content, last = Content(), self._last_applied
        if last is not None:
            content = {
                "count": len(self._applied),
                "works": last.works,
                "traced": last.is_traced,
                "cells": [asdict(cell) for cell in last.cells],
                **applied_content(last.applied.fix),
            }
        self.view.applied = content

    def try_fix(self, finding: int, fix: int) -> Trace:
        """Verify one fix of the last trace, as its button does.

        Returns:
            The trace with the outcome.

        Raises:
            DevwidgetError: If there is no such fix, or the step cannot be run again. The panel shows it too.
        """
        with self.lock:
            with self._show_busy(say("verifying the fix: the step runs twice …")):
                before, chosen = _choose_fix(self.trace, finding, fix)
                tried = self.actions.try_fix(self._request, chosen, self._show_progress)
                trace = _replace_fix(before, finding, fix, tried)
                self.kept = trace if self.kept is before else self.kept
            self.show_trace(trace, outdated=self._outdated)
            return trace

    @contextlib.contextmanager
    def _show_busy(self, words: str) -> Iterator[None]:
        """Show what is running, and how it failed."""
        self._refused = None
        self.show_status("busy", words)
        try:
            yield
        except DevwidgetError as error:
            # The error as it was raised has frames, and they hold the model: keep its words alone.
            self._refused = DevwidgetError(error.what, why=error.why, instead=error.instead)
            self._show_refusal(str(error))
            raise
        except KeyboardInterrupt:
            self._show_refusal(say("cancelled; the model was restored"), "cancelled")
            raise
        except BaseException as error:
            self._show_refusal(error_text(error))
            raise

    def _show_progress(self, text: str) -> None:
        self.show_status("busy", code_word(text))

    def show_trace(self, trace: Trace, *, outdated: str = "") -> None:
        """Draw a trace on the module tree; `outdated` says why it shows an earlier state of the model."""
        with self.lock:
            self.trace, self._refused = trace, None
            self.view.printed = ""  # what an earlier one has printed
            self._read_again()
            self._outdated = outdated
            self._draw_marks()
            self._draw_memory()
            self._draw_compared()
            self._show_result(trace)
            self.save_again()

    def draw_devices(self, opened: Collection[str] = (), *, every: bool = False) -> Content:
        """Draw the model on its devices, expanded as `views.devices.make_picture` specifies."""
        return devices_content(self.snapshot or Snapshot(()), self.table, self.trace, opened, every=every)

    def follow_name(self, cell: str = "") -> bool:
        """Follow the model's name after a cell; return whether the cell was the first to display this panel.

        Args:
            cell: Id of the cell in the notebook, "" if unknown.
        """
        self._is_rebound, self._continues = self.actions.follow(), False
        if self._is_rebound:
            self._note_rebinding()
        if self._cell or not self._was_displayed:
            return False
        self._cell = cell
        return bool(cell)

    def is_replaced_by(self, other: DeviceWidget) -> bool:
        """Return whether a newer panel of the same name replaces this one in the page."""
        if other is self or self._is_replaced:
            return False
        return other._cell == self._cell != "" and other.actions.name() == self.actions.name() != ""

    def take_over(self, before: DeviceWidget) -> None:
        """Take over the trace and the applied fixes of the previous panel, which the page no longer shows."""
        with self.lock:
            before._is_replaced = True
            if self.trace is not None or before.trace is None:
                return
            self._applied, self.kept = before._applied, before.kept
            outdated = before._outdated
            if not self._applied:
                self.kept = before.trace
                outdated = outdated or Message("The cell was re-run after this trace. Press Trace batch.")
            if self.actions.request == before.actions.request:
                self._request = before._request
            self._is_rebound, self._continues = before._is_rebound, True
            self._has_traced, before._has_traced = before._has_traced, False
            before._applied = []
            before._draw_applied()
            self._draw_applied()
            self.show_trace(before.trace, outdated=outdated)

    def after_cell(self, raw: str = "", succeeded: bool = False, number: int = 0, *, is_new: bool = False) -> None:
        """Update after a cell. A panel that is no longer shown releases a batch that only it keeps.

        Args:
            raw: Text of the cell.
            succeeded: Whether it ran to its end.
            number: Its execution count.
            is_new: Whether it displayed this panel, which the page may not know yet.
        """
        if is_new and self.trace is None:
            self._recall()
        if not self.is_shown and not is_new:
            if self._was_shown:
                self.actions.forget()
            return
        self._was_shown = self._was_shown or self.is_shown
        self.refresh_after_cell()
        if succeeded:
            self._trace_again_after(raw, number)
        elif self._last_applied is not None and raw in self._last_applied.awaited:
            self._show_refusal(say("The cell raised an exception, so nothing was traced. Fix the cell and run it again."))

    def _trace_again_after(self, raw: str, number: int) -> None:
        """Trace again if a cell has brought the last fix into effect, or an object that repeats the last trace."""
        last = self._last_applied
        is_live = last is not None and (last.note_run(raw, number) or self._is_rebound)
        if last is not None and is_live and not last.is_traced:
            last.works, last.awaited, self._again = "now", (), ""
            self._draw_applied()
        elif (self._is_rebound or self._continues) and self._has_traced and self.actions.can_repeat(self._request):
            self._again = self._why_other()
        else:
            return
        self.jobs.submit(self._trace_after_cell)

    def _recall(self) -> None:
        """Compare later traces with the one that the notebook has saved, of an earlier kernel."""
        self.kept = self.kept or find_trace(self.actions.name(), self._cell)
        if self.kept is not None:
            words = say(
                "The notebook has an earlier trace of `{name}`. The next trace is compared with it.",
                name=self.actions.name(),
            )
            self.show_status("done", words)

    def _note_rebinding(self) -> None:
        """Note that the name has a new object: the trace is of the previous one, to compare later ones with."""
        if not self._applied:
            self.kept = self.trace
            self._draw_compared()
        if self.trace is not None:
            name = self.actions.name()
            self._outdated = Message("`{name}` was bound to a new object after this trace. Press Trace batch.", name=name)
            self._applied = [replace(each, outdated=self._outdated) for each in self._applied]
            self._show_result(self.trace)

    def _trace_after_cell(self) -> None:
        """Trace without a request, with the inputs of the last one; the panel shows errors."""
        with self.lock, contextlib.suppress(Exception), collect_printed(self.show_printed):
            self._show_traced(self._trace_step(self._request))

    def _why_other(self) -> Message:
        if self._is_rebound:
            return Message("`{name}` was bound to a new object, so the step was traced again.", name=self.actions.name())
        return Message("The cell was re-run, so the step was traced again.")

    def refresh_after_cell(self) -> None:
        """Refresh, and show errors in the panel instead of raising them in the user's next cell."""
        try:
            self.refresh()
        except Exception as error:
            self._show_refusal(say("the panel could not re-read the model: {error}", error=error_text(error)))

    def sample_memory(self) -> bool:
        """Redraw only the memory bars, on the thread that samples a long cell; False to stop."""
        if self.view.gone:
            # What the panel says is how the model was when it was last seen.
            return True
        for section in self.sections:
            section.sample()
        # The page ignores it when the bars have been drawn again.
        self._sampled, drawn = True, {"over": self._drawn}
        before = self.snapshot.memory if self.snapshot is not None else ()
        try:
            self.live.memory = memory_content(self._memory_now(), self.trace, before=before) | drawn
        except Exception as error:
            self.live.memory = {"error": say("memory cannot be sampled: {error}", error=error_text(error))} | drawn
            return False
        return True

    @property
    def is_shown(self) -> bool:
        """Whether a page displays the panel now."""
        return bool(self.view._view_count)

    def close(self) -> None:
        """Close the panel. The shared plotly code stays for other panels."""
        refresh.forget_panel(self)
        self.actions.forget()
        # Else the page reports a count of views on the closed channel, which is an error there.
        self.view._view_count = None
        for section in self.sections:
            section.close()
        self.close_parts(self.live)
        super().close()

    def __repr__(self) -> str:
        return panel_text(self.snapshot, self.trace)

    def _as_text(self, html: str) -> dict[str, Any]:
        last = self.trace or self.kept
        if last is None:
            return super()._as_text(html)
        return {**super()._as_text(html), **pack_trace(self.actions.name(), last)}

    def _plain_html(self) -> str:
        return panel_html(self.snapshot, self.trace)

    def _memory_now(self) -> tuple[DeviceMemory, ...]:
        memory, snapshot = self.actions.memory(), self.snapshot
        if snapshot is None:
            return memory
        grown = self.actions.training()  # gradients and optimizer state appear while a cell runs
        held = {device: {**self._held.get(device, {}), **grown.get(device, {})} for device in {*self._held, *grown}}
        return categorize_memory(memory, held)

    def show_status(self, kind: str, text: str) -> None:
        """Show the outcome of the last request: `busy`, `done`, `error`, `refused` or `moved`."""
        self.view.status = {"kind": kind, "text": safe_block(text)}

    def _show_refusal(self, text: str, kind: str = "refused") -> None:
        """Show that nothing new was drawn, and which trace is shown."""
        if self.trace:
            before = say("Showing the previous trace: {summary}", summary=self.view.traced["summary"])
        else:
            before = ""
        self.show_status(kind, "\n".join(filter(None, (text, before))))

    def _show_result(self, trace: Trace) -> None:
        kind = "error" if trace.error else "done"
        if self._outdated:
            kind = "moved"
        words = self.view.traced["summary"], said(self._outdated or self._again)
        self.show_status(kind, "\n".join(filter(None, words)))

    def _draw_compared(self) -> None:
        self.view.compared = compared_content(self.kept, self.trace)

    def _draw_memory(self) -> None:
        if self.snapshot is not None:
            self._drawn, self._sampled = self._drawn + 1, False
            self.view.memory = memory_content(self.snapshot.memory, self.trace) | {"drawn": self._drawn}

    def _draw_tree(self, snapshot: Snapshot) -> None:
        self.table = tabulate_snapshot(snapshot)
        self.draw_head()
        self.view.table = tree_content(snapshot, self.table)
        self._draw_marks()

    def draw_head(self) -> None:
        """Draw the header, in which sections may replace texts."""
        if self.snapshot is None:
            return
        content = head_content(self.snapshot, self.table)
        for section in self.sections:
            content |= section.make_head()
        self.view.head = content

    def _draw_marks(self) -> None:
        self.marks = make_overlay(self.table, self.trace)
        self.view.marks = marks_content(self.table, self.marks)
        fields = self._request
        names = StepNames(
            self.actions.name() or "model",
            _name_field(fields.batch, "batch"),
            _name_field(fields.loss, "loss_fn"),
            _name_field(fields.target, "target"),
        )
        self.view.traced = traced_content(self.trace, self.table, self.marks, names)
        self.view.devices = self.draw_devices()


@dataclass
class AppliedOnce:
    """A fix that was applied in a panel.

    Attributes:
        applied: The fix in the user's source.
        before: The trace that offered it.
        outdated: Why that trace shows an earlier state of the model, "" if it does not.
        works: As in `applied`; `now` once its cells have run.
        cells: As in `applied`, with the numbers of their last run.
        awaited: Texts of the cells that you must run before a trace shows it.
        is_traced: Whether a trace includes it.
    """

    applied: AppliedFix
    before: Trace | None
    outdated: str
    works: str
    cells: tuple[CellEdit, ...]
    awaited: tuple[str, ...]
    is_traced: bool = False

    def note_run(self, raw: str, number: int) -> bool:
        """Note the new number of a cell that was re-run; return whether it was the last one that was awaited."""
        if raw not in self.awaited:
            return False
        self.awaited = tuple(text for text in self.awaited if text != raw)
        numbers = dict(zip((cell.number for cell in self.cells), self.applied.texts, strict=True))
        self.cells = tuple(replace(cell, number=number) if numbers[cell.number] == raw else cell for cell in self.cells)
        return not self.awaited


def _name_field(expression: str, name: str) -> str:
    """Return the expression of a field; the name for what was passed without one."""
    if expression == GIVEN:
        return name
    return expression


def _tensor_devices(snapshot: Snapshot) -> list[tuple[str, str, DeviceId]]:
    return [(module.path, tensor.name, tensor.device) for module in snapshot.modules for tensor in module.tensors]


def _choose_fix(trace: Trace | None, finding: int, fix: int) -> tuple[Trace, Fix]:
    """Return the last trace, and its fix with these numbers."""
    findings = trace.findings if trace is not None else ()
    fixes = findings[finding].fixes if 0 <= finding < len(findings) else ()
    if trace is None or not 0 <= fix < len(fixes):
        raise DevwidgetError(Message("the last trace has no such fix"), instead=Message("press Trace batch"))
    return trace, fixes[fix]


def _replace_fix(trace: Trace, finding: int, fix: int, tried: Fix) -> Trace:
    """Return the trace with an updated fix, whose verification ran the step too."""
    findings, fixes = list(trace.findings), list(trace.findings[finding].fixes)
    fixes[fix] = tried
    findings[finding] = replace(findings[finding], fixes=tuple(fixes))
    return replace(trace, findings=tuple(findings), step_runs=trace.step_runs + tried.runs)
