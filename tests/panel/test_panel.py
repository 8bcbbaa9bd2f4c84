"""DeviceWidget without a page: what it carries, what it answers, what it leaves behind."""

import sys
import types
from dataclasses import replace

import ipywidgets
import pytest

from devwidget.panel.actions import CellEdit, TraceRequest
from devwidget.panel.panel import DeviceWidget
from devwidget.records.device import DeviceId
from devwidget.records.errors import BatchError, UnknownNameError
from devwidget.records.finding import Edit
from devwidget.records.memory import DeviceMemory
from tests.browser.handmade_panel import Fake, open_panel
from tests.views.builders import GPU0, MIB, one_step


@pytest.fixture
def opened():
    panel, fake = open_panel()
    yield panel, fake
    panel.close()


def asked(panel, **message):
    """The answer to a message of the page."""
    answers = []
    panel.control.send = answers.append
    panel.control._handle_custom_msg({"id": 1, **message}, [])
    return answers[0]


def test_the_panel_carries_head_tree_bars_and_inputs(opened):
    panel, _ = opened
    assert panel.view.head["title"] == "Translator"
    assert len(panel.view.table["kind"]) == 8
    assert [trace["x"] for trace in panel.view.memory["gpus"]["data"] if trace["meta"] == "parameters"] == [[3 * MIB, 2 * MIB]]
    assert panel.view.inputs["names"] == ["batch", "images"]


def test_a_trace_fills_findings_marks_and_status_and_is_told_to_observers(opened):
    panel, fake = opened
    told = []
    panel.observe(lambda change: told.append(change["new"]), "trace")
    trace = panel.run_trace()
    assert panel.trace is trace
    assert told == [trace]
    assert panel.findings == trace.findings
    assert fake.requests == [TraceRequest(batch="batch")]
    assert [card["kind"] for card in panel.view.traced["findings"]] == ["wrong-device", "unregistered-tensor"]
    assert panel.view.marks["marks"]["6"][2] == [0]
    assert panel.view.status["kind"] == "done"


def test_a_bad_batch_raises_for_code_and_is_shown_for_the_page(opened):
    panel, _ = opened
    with pytest.raises(BatchError):
        panel.run_trace(TraceRequest(batch="missing"))
    assert panel.view.status["kind"] == "refused"
    assert asked(panel, ask="trace", batch="missing") == {"to": 1, "state": "done"}
    assert "`missing` is not defined" in panel.view.status["text"]


def test_a_refused_request_keeps_the_trace_that_is_shown_and_its_inputs(opened):
    panel, fake = opened
    trace, traced = panel.run_trace(), panel.view.traced
    with pytest.raises(BatchError):
        panel.run_trace(TraceRequest(batch="missing"))
    assert (panel.trace, panel.view.traced, panel.view.status["kind"]) == (trace, traced, "refused")
    panel.run_trace()
    assert fake.requests[-1] == TraceRequest(batch="batch")


def test_a_cancelled_trace_leaves_the_last_one(opened, monkeypatch):
    panel, _ = opened
    trace = panel.run_trace()

    def cancelled(*step):
        raise KeyboardInterrupt

    monkeypatch.setattr(panel, "actions", replace(panel.actions, trace=cancelled))
    with pytest.raises(KeyboardInterrupt):
        panel.run_trace()
    assert panel.trace is trace


def test_the_button_traces_with_what_the_page_sent(opened):
    panel, fake = opened
    asked(panel, ask="trace", batch=" images ", loss="loss_fn", target=None, heal=False)
    assert fake.requests == [TraceRequest("images", "loss_fn", "", heal=False)]


def offering():
    """A trace whose first fix was not tried, because another thread ran."""
    trace = one_step()
    found, *others = trace.findings
    offered = replace(
        found.fixes[0], edits=(Edit("model.py", 1, 1, "b", "a"),), verified=False, not_tried="another thread is running: `t`"
    )
    return replace(trace, findings=(replace(found, fixes=(offered, *found.fixes[1:])), *others), step_runs=1)


def test_a_fix_that_was_not_tried_is_offered_and_tried_by_its_button(opened):
    panel, _ = opened
    panel.show_trace(offering())
    assert panel.view.traced["findings"][0]["fixes"][0]["offered"]
    panel.actions = replace(panel.actions, try_fix=lambda request, fix, _: replace(fix, verified=True, not_tried="", runs=2))
    assert asked(panel, ask="try", finding=0, fix=0) == {"to": 1, "state": "done"}
    card = panel.view.traced["findings"][0]["fixes"][0]
    assert (card["offered"], "verified" in card["confidence"]) == (False, True)
    assert panel.trace.step_runs == 3
    assert panel.view.traced["trials"] == ["the step ran 3 times: once to trace it, then to verify fixes"]
    assert panel.view.status["kind"] == "done"


def test_a_kept_trace_is_still_the_kept_one_after_a_fix_of_it_was_tried(opened):
    panel, _ = opened
    panel.show_trace(offering())
    panel.keep()
    panel.actions = replace(panel.actions, try_fix=lambda request, fix, _: replace(fix, verified=True, not_tried="", runs=2))
    asked(panel, ask="try", finding=0, fix=0)
    assert panel.view.compared["verdict"].startswith("Baseline saved")


@pytest.mark.parametrize(("finding", "fix"), [(0, 99), (-1, 0), (None, None)])
def test_a_fix_that_is_not_there_is_refused(opened, finding, fix):
    panel, _ = opened
    panel.show_trace(offering())
    asked(panel, ask="try", finding=finding, fix=fix)
    assert panel.view.status["text"].startswith("the last trace has no such fix")


def test_a_fix_that_cannot_be_tried_says_why(opened):
    panel, _ = opened
    panel.show_trace(offering())
    asked(panel, ask="try", finding=0, fix=0)  # the records are made by hand
    assert "it was loaded, created in another process or by hand" in panel.view.status["text"]


def test_a_crash_in_the_users_model_is_shown_and_lost_nowhere(opened):
    panel, fake = opened
    fake.trace = None
    panel.actions = Fake.actions(fake)
    asked(panel, ask="trace", batch="x")
    assert panel.view.status["text"].startswith("TypeError")


def test_detail_answers_for_a_row_and_not_beyond(opened):
    panel, _ = opened
    assert asked(panel, ask="select", row=6)["detail"]["path"] == "decoder.head"
    assert asked(panel, ask="select", row=99)["detail"] is None


FORMS = {"text": "Translator ·", "json": '"Snapshot"', "csv": "decoder.head.weight", "html": "<!DOCTYPE html>"}


def test_every_form_can_be_saved_and_an_unknown_one_is_refused(opened):
    for form, part in FORMS.items():
        answer = asked(opened[0], ask="export", form=form)
        assert part in answer["text"]
        assert answer["name"].startswith("Translator-devices.")
    assert "pdf" in asked(opened[0], ask="export", form="pdf")["error"]


def test_refresh_redraws_only_what_changed(opened):
    panel, fake = opened
    table = panel.view.table
    panel.refresh()
    assert panel.view.table is table
    fake.record = type(fake.record)(fake.record.modules[:4], memory=fake.record.memory)
    panel.refresh()
    assert len(panel.view.table["kind"]) == 5


def test_a_gone_model_is_told_and_the_last_state_stays(opened):
    panel, fake = opened
    fake.gone = True
    panel.refresh()
    assert panel.view.gone is True
    assert len(panel.view.table["kind"]) == 8
    assert "Translator" in repr(panel)


def test_a_model_gone_from_the_start_still_gives_a_panel():
    fake = Fake()
    fake.gone = True
    panel = DeviceWidget(fake.actions())
    assert "deleted" in repr(panel)
    assert "deleted" in panel._repr_mimebundle_()["text/html"]
    panel.close()


def test_saved_notebooks_get_text_and_plain_html(opened):
    panel, _ = opened
    panel.run_trace()
    bundle = panel._repr_mimebundle_()
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == panel.view.model_id
    assert bundle["text/plain"].startswith("Translator · 1.3 M parameters")
    assert "<table>" in bundle["text/html"]
    assert "<script" not in bundle["text/html"]
    assert "error[wrong-device]" in bundle["text/html"]


def test_in_colab_the_bundle_says_which_manager_draws_it(opened, monkeypatch):
    widgets = types.SimpleNamespace(_installed_url="https://manager.js")
    output = types.SimpleNamespace(enable_custom_widget_manager=lambda: None, _widgets=widgets)
    monkeypatch.setitem(sys.modules, "google.colab.output", output)
    panel, _ = opened
    bundle, metadata = panel._repr_mimebundle_()
    (view,) = metadata
    assert view in bundle
    assert metadata[view] == {"colab": {"custom_widget_manager": {"url": "https://manager.js"}}}


def test_a_notebook_keeps_the_panel_beside_the_live_one(opened, monkeypatch):
    panel, _ = opened
    panel.run_trace()
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw, display_id=None: shown.append(data))
    panel._ipython_display_()
    saved, live = shown
    assert live == {"application/vnd.jupyter.widget-view+json": panel._repr_mimebundle_()[next(iter(live))]}
    assert "The panel as it was saved" in saved["text/html"]
    assert "error[wrong-device]" in saved["text/html"]
    assert saved["text/plain"] == repr(panel)


def in_a_kernel(monkeypatch):
    """IPython as it is in a kernel; what is displayed, and what is put in its place later."""
    shown, again = [], []
    monkeypatch.setattr("devwidget.panel.displayed.runs_in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda data, raw, display_id="": shown.append((display_id, data)))
    monkeypatch.setattr("IPython.display.update_display", lambda data, raw, display_id: again.append((display_id, data)))
    return shown, again


def test_what_is_saved_follows_traces_and_devices_and_not_memory_alone(opened, monkeypatch):
    panel, fake = opened
    shown, again = in_a_kernel(monkeypatch)
    panel.run_trace()
    assert again == []  # not displayed yet
    panel._ipython_display_()
    saved, _ = shown
    panel.run_trace()
    assert [each[0] for each in again] == [saved[0]]
    assert "error[wrong-device]" in again[-1][1]["text/html"]
    fake.record = replace(fake.record, memory=fake.memory())
    panel.refresh()
    assert len(again) == 1
    fake.record = replace(fake.record, modules=fake.record.modules[:3])
    panel.refresh()
    assert len(again) == 2
    assert "decoder" not in again[-1][1]["text/plain"].split("Trace:")[0]


def test_in_a_terminal_nothing_is_printed_again(opened, monkeypatch):
    panel, _ = opened
    _, again = in_a_kernel(monkeypatch)
    monkeypatch.setattr("devwidget.panel.displayed.runs_in_notebook", lambda: False)
    panel._ipython_display_()
    panel.run_trace()
    assert again == []


def test_a_refusal_says_of_what_the_picture_below_it_is(opened):
    panel, _ = opened
    with pytest.raises(BatchError):
        panel.run_trace(TraceRequest(batch="missing"))
    assert "Shown below" not in panel.view.status["text"]
    panel.run_trace(TraceRequest(batch="batch"))
    summary = panel.view.traced["summary"]
    with pytest.raises(BatchError):
        panel.run_trace(TraceRequest(batch="missing"))
    assert panel.view.status["text"].endswith(f"Showing the previous trace: {summary}")


def test_a_model_that_was_moved_after_its_trace_is_said_to_be(opened):
    panel, fake = opened
    panel.run_trace()
    module = next(each for each in fake.record.modules if each.tensors)
    tensors = tuple(replace(each, device=DeviceId("cuda", 3)) for each in module.tensors)
    before = fake.record
    fake.record = replace(
        before, modules=tuple(replace(each, tensors=tensors) if each is module else each for each in before.modules)
    )
    panel.refresh()
    assert panel.view.status["kind"] == "moved"
    assert "The model was moved after this trace. Press Trace batch." in panel.view.status["text"]
    panel.run_trace()
    assert panel.view.status["kind"] == "done"


def test_bars_of_a_model_that_is_gone_are_not_drawn_on(opened):
    panel, fake = opened
    fake.gone = True
    panel.refresh()
    before = panel.live.memory
    assert panel.sample_memory() is True
    assert panel.live.memory == before


def test_where_both_would_be_shown_there_is_one_output(opened, monkeypatch):
    panel, _ = opened
    monkeypatch.setenv("VSCODE_PID", "1")
    with pytest.raises(NotImplementedError):
        panel._ipython_display_()


def test_memory_is_sampled_and_a_failing_look_stops_the_watch(opened):
    panel, fake = opened
    assert panel.sample_memory() is True
    assert panel.live.memory["gpus"] != panel.view.memory["gpus"]
    fake.record = None
    assert panel.sample_memory() is False
    assert "memory cannot be sampled" in panel.live.memory["error"]


def test_bars_are_drawn_again_after_a_cell_in_which_they_were_sampled(opened):
    panel, _ = opened
    assert panel.sample_memory() is True
    assert panel.live.memory["over"] == panel.view.memory["drawn"]
    panel.refresh_after_cell()
    assert panel.live.memory["over"] < panel.view.memory["drawn"]
    before = panel.view.memory
    panel.refresh_after_cell()
    assert panel.view.memory is before


def test_what_appears_while_a_cell_runs_is_named_gradients_and_not_activations(opened):
    panel, _ = opened
    plain = DeviceMemory(GPU0, "virtual GPU", True, 16 * MIB, activations=9 * MIB, free=7 * MIB)
    panel.actions = replace(
        panel.actions, memory=lambda: (plain,), training=lambda: {GPU0: {"gradients": 3 * MIB, "optimizer": MIB}}
    )
    assert panel.sample_memory() is True
    bars = {trace["meta"]: trace["x"] for trace in panel.live.memory["gpus"]["data"]}
    assert (bars["gradients"], bars["optimizer"]) == ([3 * MIB], [MIB])
    assert "activations" not in bars


def test_a_refresh_that_fails_after_a_cell_is_shown_and_does_not_raise(opened):
    panel, fake = opened
    fake.names = None
    panel.actions = Fake.actions(fake)
    panel.refresh_after_cell()
    assert "could not re-read the model" in panel.view.status["text"]


def test_a_panel_is_a_widget_that_others_can_hold(opened):
    panel, _ = opened
    box = ipywidgets.VBox([panel])
    assert box.children == (panel,)
    assert panel.children == (panel.view,)
    box.close()


def test_what_the_page_has_chosen_is_told_and_does_not_lead_the_page_back(opened):
    panel, _ = opened
    told = []
    panel.observe(lambda change: told.append(change["new"]), "selected")
    assert panel.selected is None
    asked(panel, ask="select", row=6)
    assert (panel.selected, told, panel.view.chosen) == ("decoder.head", ["decoder.head"], {})


def test_a_module_that_code_selects_is_shown_on_the_page_and_told_to_observers(opened):
    panel, _ = opened
    told = []
    panel.observe(lambda change: told.append(change["new"]), "selected")
    panel.select("decoder.head")
    first = panel.view.chosen
    panel.select("decoder.head")  # the page may have gone elsewhere since
    assert (first["path"], told) == ("decoder.head", ["decoder.head"])
    assert panel.view.chosen != first
    panel.selected = "encoder"
    assert panel.view.chosen["path"] == "encoder"


def test_a_row_that_is_not_there_is_refused_with_the_nearest_name(opened):
    panel, _ = opened
    with pytest.raises(UnknownNameError, match=r"no row 'decoder\.haed'; did you mean 'decoder\.head'"):
        panel.select("decoder.haed")
    assert panel.selected is None


def test_prints_of_the_traced_code_are_shown_in_the_panel_and_of_a_cell_in_the_cell(opened, capsys):
    panel, fake = opened
    trace = fake.trace
    fake.trace = lambda request, progress: print("step", request.batch) or trace(request, progress)
    panel.actions = Fake.actions(fake)
    asked(panel, ask="trace", batch="images")
    assert panel.view.printed == "step images\n"
    assert capsys.readouterr().out == ""
    panel.run_trace()
    assert panel.view.printed == ""
    assert capsys.readouterr().out == "step images\n"  # as asked last
    fake.trace = lambda request, progress: print("x" * 30_000) or 1 / 0
    panel.actions = Fake.actions(fake)
    asked(panel, ask="trace", batch="images")
    assert panel.view.printed.startswith("... 10,001 earlier characters")


class Applied:
    """A fix that is applied nowhere, and notes what it was asked for."""

    cells, files, texts = (CellEdit(3, "x = 1", 1, ["x = 1"], ["x = 2"]),), (), ("x = 2",)

    def __init__(self, fix, works):
        self.fix, self.works, self.asked = fix, works, []

    def take_effect(self):
        self.asked.append("effect")

    def take_back(self):
        self.asked.append("back")


@pytest.fixture(params=["now", "cell"])
def applying(request):
    """A panel with a trace, whose fixes work at once or once their cell has run again; what was applied."""
    fake, made = Fake(), []
    actions = replace(fake.actions(), apply=lambda fix: made.append(Applied(fix, request.param)) or made[-1])
    panel = DeviceWidget(actions)
    panel.run_trace()
    yield panel, fake, made, request.param
    panel.close()


def test_what_the_page_has_written_takes_effect_and_is_traced_when_that_shows_it(applying):
    panel, fake, made, works = applying
    answer = asked(panel, ask="apply", finding=0, fix=0)
    assert (answer["works"], answer["cells"][0]["new"], answer["files"]) == (works, ["x = 2"], [])
    assert made[0].asked == []
    before = panel.trace
    asked(panel, ask="applied")
    assert made[0].asked == ["effect"]
    assert panel.view.applied["works"] == works
    assert len(fake.requests) == (2 if works == "now" else 1)
    assert panel.kept is before


def test_a_cell_that_has_run_again_is_traced_and_no_other(applying):
    panel, fake, _, _ = applying
    asked(panel, ask="apply", finding=0, fix=0)
    asked(panel, ask="applied")
    panel.view._view_count = 1
    for raw, succeeded in (("y = 1", True), ("x = 2", False), ("x = 2", True), ("x = 2", True)):
        panel.after_cell(raw, succeeded)
    assert len(fake.requests) == 2
    assert panel.view.applied["works"] == "now"


def test_undo_takes_back_one_fix_after_the_other(applying):
    panel, _, made, _ = applying
    first = panel.trace
    for _ in range(2):
        asked(panel, ask="apply", finding=0, fix=0)
        asked(panel, ask="applied")
    assert panel.view.applied["count"] == 2
    asked(panel, ask="undo")
    assert [each.asked for each in made] == [["effect"], ["effect", "back"]]
    assert (panel.view.applied["count"], panel.kept) == (1, first)
    asked(panel, ask="undo")
    assert [each.asked for each in made] == [["effect", "back"]] * 2
    assert (panel.trace, panel.view.applied) == (first, {})


def test_a_fix_that_nobody_prepared_is_refused(opened):
    panel, _ = opened
    asked(panel, ask="applied")
    assert panel.view.applied == {}
    assert "error" in asked(panel, ask="apply", finding=0, fix=0)
