"""The panel around the tree, in a bare page."""

import pathlib
import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from devwidget.records.explanation import Failure
from devwidget.records.finding import Edit
from devwidget.records.memory import Holding, MemoryPoint, Refusal
from devwidget.records.trace import Operand, Trace
from devwidget.report.page.content import compared_content, memory_content, traced_content
from devwidget.views.overlay import make_overlay
from devwidget.views.placement import tabulate_snapshot
from tests.browser.esm import BarePage, large
from tests.views.builders import GPU0, GPU1, MIB, data_parallel, one_step, site, split_model, wrong_device


@pytest.fixture
def bare(browser):
    opened = BarePage(browser, split_model())
    yield opened
    opened.close()


def traced(trace):
    table = tabulate_snapshot(split_model())
    return traced_content(trace, table, make_overlay(table, trace))


def test_before_a_trace_each_tab_says_how_to_get_one(bare):
    for name in ("Findings", "Trace", "Devices", "Memory"):
        bare.page.get_by_role("tab", name=name).click()
        expect(bare.page.get_by_role("tabpanel", name=name)).to_contain_text(
            "Name a batch above, such as batch, and press Trace batch."
        )


def test_the_button_sends_what_was_typed(bare):
    bare.page.get_by_label("batch", exact=True).fill("next(iter(loader))")
    bare.page.get_by_label("loss").fill("loss_fn")
    bare.page.get_by_label("heal").uncheck()
    bare.page.get_by_role("button", name="Trace batch").click()
    sent = bare.sent("trace")[0]
    assert (sent["batch"], sent["loss"], sent["target"], sent["heal"]) == ("next(iter(loader))", "loss_fn", "", False)
    expect(bare.page.get_by_role("button", name="Trace batch")).to_be_disabled()
    expect(bare.page.get_by_role("button", name="Cancel")).to_be_visible()


def test_the_best_fitting_variable_is_offered(bare):
    expect(bare.page.get_by_label("batch", exact=True)).to_have_value("batch")


def test_what_was_typed_survives_new_offers(bare):
    bare.page.get_by_label("batch", exact=True).fill("mine")
    bare.update("panel", "inputs", {"batch": "", "names": ["other"]})
    expect(bare.page.get_by_label("batch", exact=True)).to_have_value("mine")


def test_a_panel_that_was_traced_before_it_is_shown_opens_as_one_traced_after(bare):
    bare.update("panel", "traced", traced(one_step()))
    bare.page.evaluate("() => window.models.panel.set('status', { kind: 'done', text: '2 errors' })")
    bare.page.evaluate("() => window.show('b')")
    expect(bare.page.locator("#b").get_by_role("tab", name="Findings")).to_have_attribute("aria-selected", "true")
    expect(bare.page.locator("#b .dw-status")).to_have_text("2 errors")


def test_bars_of_a_running_cell_that_come_after_its_end_are_not_drawn(bare):
    memory = split_model().memory
    ended = memory_content(memory, None)
    running = memory_content([replace(each, activations=5 * MIB, free=0) for each in memory], None, before=memory)
    legend = bare.page.locator(".dw-memory .dw-legend")
    bare.update("panel", "memory", ended | {"drawn": 1})
    bare.update("live", "figure", running | {"over": 1})
    expect(legend).to_contain_text("activations and other new tensors")
    bare.update("panel", "memory", ended | {"drawn": 2})
    expect(legend).to_contain_text("tensors outside this model")
    bare.update("live", "figure", running | {"over": 1})
    expect(legend).to_contain_text("tensors outside this model")


def test_a_queued_trace_says_that_it_waits(bare):
    bare.answer("trace", {"state": "queued"})
    bare.page.get_by_role("button", name="Trace batch").click()
    expect(bare.page.locator(".dw-status")).to_have_text("queued: waiting for the running cell")


def test_an_error_in_the_handler_is_shown(bare):
    bare.answer("trace", {"error": "RuntimeError: broken"})
    bare.page.get_by_role("button", name="Trace batch").click()
    expect(bare.page.locator(".dw-status-error")).to_have_text("RuntimeError: broken")
    expect(bare.page.get_by_role("button", name="Trace batch")).to_be_enabled()


def test_findings_open_after_a_trace_and_lead_to_the_row(bare):
    bare.update("panel", "traced", traced(one_step()))
    bare.update("panel", "status", {"kind": "done", "text": "2 errors"})
    card = bare.page.locator(".dw-finding[data-kind='wrong-device']")
    expect(card).to_be_visible()
    expect(card.locator("h4 code")).to_have_text("addmm")
    expect(card).to_contain_text("return self.head(hidden)")
    card.get_by_role("button", name="decoder.head").click()
    expect(bare.page.locator("[data-path='decoder.head']")).to_have_attribute("aria-selected", "true")
    expect(bare.page.locator(".dw-detail")).to_contain_text("decoder.head")


def test_a_finding_with_markup_in_it_stays_text(bare):
    nasty = replace(wrong_device(), headline="`<img src=x onerror=alert(1)>` <b>bold</b>", notes=("<script>alert(1)</script>",))
    bare.update("panel", "traced", traced(Trace(findings=(nasty,))))
    bare.page.get_by_role("tab", name="Findings").click()
    expect(bare.page.locator(".dw-finding h4")).to_have_text("<img src=x onerror=alert(1)> <b>bold</b>")
    assert bare.page.locator(".dw-finding img, .dw-finding script, .dw-finding b").count() == 0


def test_checks_that_could_not_run_are_counted_and_not_their_reasons(bare):
    reason = "no call of DataParallel in this trace"
    skipped = (f"parallel-io: {reason}", f"parallel-misplaced: {reason}")
    bare.update("panel", "traced", traced(Trace(checked=("wrong-device",), not_checked=skipped)))
    expect(bare.page.locator(".dw-verdict")).to_contain_text("1 check ran, 2 could not")


def test_a_clean_trace_says_what_was_checked(bare):
    bare.update("panel", "traced", traced(Trace(checked=("wrong-device",), not_checked=("ping-pong: no backward",))))
    bare.page.get_by_role("tab", name="Findings").click()
    page = bare.page.get_by_role("tabpanel", name="Findings")
    expect(page).to_contain_text("Nothing found")
    expect(page).to_contain_text("checked: wrong-device")
    expect(page).to_contain_text("ping-pong: no backward")


FAILED = Trace(
    error="ValueError: no such thing",
    failure=Failure("ValueError", "no such thing", site(41, "raise ValueError(...)"), "decoder.head", ("a.py:1 in f",) * 3),
    checked=("wrong-device",),
)


def test_a_step_that_ended_by_an_exception_says_so_first_and_never_that_nothing_was_found(bare):
    bare.update("panel", "traced", traced(FAILED))
    bare.update("panel", "status", {"kind": "error", "text": "ended by an exception"})
    page = bare.page.get_by_role("tabpanel", name="Findings")
    expect(page).to_be_visible()
    card = page.locator(".dw-failure")
    expect(card).to_contain_text("the step ended by ValueError in decoder.head")
    expect(card).to_contain_text("raise ValueError(...)")
    expect(page).not_to_contain_text("Nothing found")
    expect(card.get_by_text("a.py:1 in f").first).to_be_hidden()
    card.get_by_text("traceback, 3 frames").click()
    expect(card.get_by_text("a.py:1 in f").first).to_be_visible()
    card.get_by_role("button", name="decoder.head").click()
    expect(bare.page.locator("[data-path='decoder.head']")).to_have_attribute("aria-selected", "true")


def test_the_tensor_in_the_wrong_place_stands_first_and_bold_and_the_others_are_quiet(bare):
    stray = Operand("mat2", "weight", (1000, 512), "float32", GPU1, 2048000, stray=True)
    fault = replace(one_step().faults[0], operands=(replace(stray, expression="input", stray=False, device=GPU0), stray))
    finding = replace(wrong_device(), explains=(fault.number,))
    bare.update("panel", "traced", traced(replace(one_step(), faults=(fault,), findings=(finding,))))
    bare.page.get_by_role("tab", name="Findings").click()
    first, second = bare.page.locator(".dw-operands li").all()
    assert [first.text_content(), second.text_content()] == ["weight f32[1000, 512] cuda:1", "input f32[8, 512] cuda:0"]
    weights = [each.evaluate("(item) => Number(getComputedStyle(item).fontWeight)") for each in (first, second)]
    assert weights == [700, 400]


LIVE = MemoryPoint(20, "forward", "decoder", None, 15 * MIB, parameters=3 * MIB, activations=10 * MIB, inputs=2 * MIB)
HELD = (Holding("activations", 5 * MIB, "forward", "encoder", site(41, "h = encoder(x)")),)
NO_ROOM = Refusal(20, 4 * MIB, 15 * MIB, "forward", "decoder", None, LIVE, HELD)
FULL = replace(
    one_step(),
    error="OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 MiB.",
    failure=Failure(
        "OutOfMemoryError", "CUDA out of memory. Tried to allocate 4.00 MiB.", site(41, "y = x @ x"), "decoder.head",
        ("a.py:1 in f",), out_of_memory=True,
    ),
    memory=(replace(one_step().memory[0], refused=(NO_ROOM,)),),
    samples=64,
)  # fmt: skip


def test_out_of_memory_says_what_had_no_room_and_folds_the_allocators_own_text(bare):
    bare.update("panel", "traced", traced(FULL))
    bare.update("panel", "status", {"kind": "error", "text": "ended by an exception"})
    card = bare.page.locator(".dw-failure")
    expect(card.locator(".dw-message")).to_have_text(re.compile("cuda:0 had no room for 4.00 MiB in forward of decoder"))
    expect(card).to_contain_text("live then on cuda:0: 5.00 MiB activations of encoder, train.py:41")
    expect(card).to_contain_text("took 12.0 MiB and asked for 4.00 MiB more")
    expect(card).to_contain_text("51 of the 64 samples get past this line")
    expect(card.locator(".dw-fix code")).to_have_text(
        [re.compile(r"devwidget\.plan\(model, smaller"), re.compile("checkpoint")]
    )
    expect(card.get_by_text("CUDA out of memory")).to_be_hidden()
    card.get_by_text("traceback, 1 frame").click()
    expect(card.get_by_text("CUDA out of memory")).to_be_visible()


def test_a_kept_trace_stands_beside_the_next_one(bare):
    fixed = replace(one_step(), findings=one_step().findings[1:], moves=one_step().moves[:2])
    bare.page.get_by_role("tab", name="Trace").click()
    bare.update("panel", "traced", traced(one_step()))
    bare.page.get_by_role("button", name="keep to compare").click()
    assert len(bare.sent("keep")) == 1
    bare.update("panel", "compared", compared_content(one_step(), fixed))
    section = bare.page.locator(".dw-compared")
    expect(section.locator("h4")).to_have_text("1 finding fixed, 0 new, 1 left; 1 hop fewer")
    expect(section.locator("li")).to_have_text("✓ fixed: addmm was given tensors from cuda:0 and cuda:1")
    rows = [row.locator("td").all_text_contents() for row in section.locator("tbody tr").all()]
    assert ["hops", "5", "4"] in rows
    assert rows[-1][1:] == ["1 hop, 1.00 MiB", "none"]
    expect(section.locator("tr").last.locator(".dw-chip")).to_have_text(["cpu", "cuda:0"])


@pytest.mark.parametrize("width", [560, 700, 1600])
def test_the_form_is_one_line(browser, width):
    narrow = BarePage(browser, split_model(), viewport={"width": width, "height": 700})
    narrow.update("panel", "status", {"kind": "busy", "text": "tracing …"})
    boxes = [part.bounding_box() for part in narrow.page.locator(".dw-inputs").locator("input, button").all()]
    middles = [box["y"] + box["height"] / 2 for box in boxes]
    assert max(middles) - min(middles) < 8
    assert max(box["x"] + box["width"] for box in boxes) <= width
    narrow.close()


def test_hops_are_listed_by_line(bare):
    bare.update("panel", "traced", traced(one_step()))
    bare.page.get_by_role("tab", name="Trace").click()
    first = bare.page.locator(".dw-hop-row").first
    expect(first).to_contain_text("1.00 MiB")
    expect(first.locator(".dw-chip")).to_have_text(["cpu", "cuda:0"])
    first.get_by_role("button", name="encoder.attention").click()
    expect(bare.page.locator("[data-path='encoder.attention']")).to_have_attribute("aria-selected", "true")


def test_replicas_and_the_gather_point_are_listed(bare):
    bare.update("panel", "traced", traced(data_parallel(3)))
    bare.page.get_by_role("tab", name="Devices").click()
    expect(bare.page.locator(".dw-replica")).to_have_count(3)
    expect(bare.page.get_by_role("tabpanel", name="Devices")).to_contain_text("gathered on cuda:0")


def test_a_chip_in_the_header_filters_the_table(bare):
    bare.page.locator(".dw-headline .dw-meter[data-device='cuda:1']").click()
    expect(bare.page.get_by_label("filter rows")).to_have_value("device:cuda:1")
    assert bare.paths() == ["", "decoder", "decoder.head"]


def test_tabs_move_with_arrows(bare):
    bare.page.get_by_role("tab", name="Modules").focus()
    bare.page.keyboard.press("ArrowRight")
    expect(bare.page.get_by_role("tab", name="Findings")).to_be_focused()
    bare.page.keyboard.press("End")
    expect(bare.page.get_by_role("tab", name="Memory")).to_have_attribute("aria-selected", "true")


def test_a_deleted_model_leaves_its_last_state_greyed(bare):
    bare.update("panel", "gone", True)
    expect(bare.page.locator(".dw-banner")).to_contain_text("deleted")
    expect(bare.page.get_by_role("button", name="Trace batch")).to_be_disabled()
    assert len(bare.paths()) == 8


def test_two_views_of_one_panel_both_follow(bare):
    bare.page.evaluate("() => window.show('b')")
    bare.update("panel", "traced", traced(one_step()))
    for place_ in ("a", "b"):
        expect(bare.page.locator(f"#{place_}").get_by_role("tab", name="Findings")).to_contain_text("2")


def test_a_closed_view_leaves_no_listener(bare):
    bare.page.evaluate("() => window.stopA()")
    names = ("panel", "live")
    left = bare.page.evaluate(
        "(names) => names.map((n) => [...window.models[n].listeners.values()].reduce((s, l) => s + l.size, 0))", names
    )
    assert left == [0, 0]


def test_plain_keys_stay_inside_and_shift_enter_passes(bare):
    bare.page.evaluate("() => { window.seen = []; document.body.addEventListener('keydown', (e) => window.seen.push(e.key)) }")
    bare.page.get_by_role("treegrid").focus()
    for key in ("x", "d", "Shift+Enter", "Control+s"):
        bare.page.keyboard.press(key)
    assert bare.page.evaluate("() => window.seen.filter((key) => key.length === 1 || key === 'Enter')") == ["Enter", "s"]


def test_saving_asks_python_for_the_file(bare):
    bare.answer("export", {"name": "net.json", "mime": "application/json", "text": "{}"})
    bare.page.get_by_label("Export").click()
    with bare.page.expect_download() as download:
        bare.page.get_by_role("button", name="Save snapshot as JSON").click()
    assert download.value.suggested_filename == "net.json"


def test_a_recording_in_which_nothing_ran_does_not_say_that_nothing_was_found(bare):
    bare.update("panel", "traced", traced(Trace()))
    bare.page.get_by_role("tab", name="Findings").click()
    page = bare.page.get_by_role("tabpanel", name="Findings")
    expect(page).to_contain_text("Nothing ran, so nothing was checked.")
    expect(page).not_to_contain_text("✓")


def test_prints_of_the_traced_code_are_in_the_panel(bare):
    expect(bare.page.get_by_text("printed by the traced code")).to_be_hidden()
    bare.update("panel", "printed", "step 1\n<b>loss</b> 0.5\n")
    expect(bare.page.locator(".dw-printed pre")).to_have_text("step 1\n<b>loss</b> 0.5\n")


def test_after_a_restart_everything_that_needs_the_kernel_says_that_it_is_gone(browser):
    restarted = BarePage(browser, split_model(), one_step())
    page, gone = restarted.page, "The kernel was restarted: nobody answers this panel"
    page.evaluate("() => window.models.panel.fire('comm_live_update')")
    expect(page.locator(".dw-banner")).to_contain_text("restarted")
    asked = page.evaluate("() => window.models.control.sent.length")
    status = page.locator(".dw-status")
    for entry in ("Copy text report", "Copy picture to share", "Save as HTML", "Save snapshot as JSON", "Save tensors as CSV"):
        restarted.update("panel", "status", {"kind": "done", "text": "before"})
        page.get_by_label("Export").click()
        page.get_by_role("button", name=entry).click()
        expect(status).to_contain_text(gone)
    restarted.update("panel", "status", {"kind": "done", "text": "before"})
    page.get_by_role("tab", name="Trace").click()
    page.get_by_role("button", name="keep to compare").click()
    expect(status).to_contain_text(gone)
    expect(page.get_by_role("button", name="Trace batch")).to_be_disabled()
    assert page.evaluate("() => window.models.control.sent.length") == asked
    restarted.close()


def test_a_module_that_python_chooses_is_shown_from_any_tab(bare):
    bare.page.get_by_role("tab", name="Findings").click()
    bare.update("panel", "chosen", {"path": "decoder.head", "at": 1})
    expect(bare.page.locator("[data-path='decoder.head']")).to_have_attribute("aria-selected", "true")
    expect(bare.page.locator(".dw-detail")).to_contain_text("f32[1000, 512]")


SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="630" viewBox="0 0 1200 630"></svg>'


@pytest.mark.parametrize("entry", ["Save picture to share (PNG)", "Copy picture to share"])
def test_the_picture_to_share_is_a_png_of_1200_by_630_on_the_clipboard_or_in_a_file(bare, entry):
    bare.answer("export", {"text": SVG, "name": "Translator-devices.svg", "mime": "image/svg+xml"})
    bare.page.get_by_label("Export").click()
    with bare.page.expect_download() as download:  # a page that is no secure context has no clipboard
        bare.page.get_by_role("button", name=entry).click()
    picture = pathlib.Path(download.value.path()).read_bytes()
    assert download.value.suggested_filename == "Translator.png"
    assert (int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24])) == (1200, 630)


def test_a_word_in_passing_gives_the_summary_of_the_trace_back(bare):
    bare.update("panel", "status", {"kind": "done", "text": "2 errors"})
    bare.answer("export", {"text": "{}", "name": "x.json", "mime": "application/json"})
    bare.page.get_by_label("Export").click()
    with bare.page.expect_download():
        bare.page.get_by_role("button", name="Save snapshot as JSON").click()
    expect(bare.page.locator(".dw-status")).to_have_text("saved x.json")
    expect(bare.page.locator(".dw-status")).to_have_text("2 errors")


def test_curves_of_all_gpus_have_one_scale(browser):
    bare = BarePage(browser, split_model(), one_step(), plotly=True)
    bare.page.get_by_role("tab", name="Memory").click()
    bare.page.locator(".dw-steps .main-svg").first.wait_for()
    ends = bare.page.evaluate("""() => { const { layout } = document.querySelector('.dw-steps .dw-plot');
      return Object.keys(layout).filter((key) => key.startsWith('yaxis')).map((key) => layout[key].range[1]); }""")
    assert len(ends) == 2
    assert len(set(ends)) == 1
    bare.close()


def test_what_cannot_be_clicked_does_not_look_like_a_button(bare):
    assert bare.page.locator(".dw-virtual").evaluate("(each) => [each.tagName, getComputedStyle(each).borderStyle]") == [
        "SPAN",
        "none",
    ]


def test_no_part_of_memory_has_the_colour_of_a_device(browser):
    bare = BarePage(browser, split_model(), one_step(), plotly=True)
    bare.page.locator(".dw-memory .point path").first.wait_for(state="attached")
    fills = bare.page.locator(".dw-legend i").evaluate_all("(all) => all.map((each) => getComputedStyle(each).backgroundColor)")
    dots = bare.page.locator(".dw-meter .dw-dot").evaluate_all(
        "(all) => all.map((each) => getComputedStyle(each).backgroundColor)"
    )
    assert len(fills) > 3
    assert not set(fills) & set(dots)
    bare.close()


def test_the_timeline_says_nothing_that_the_status_line_says_already(bare):
    bare.update("panel", "traced", traced(one_step()))
    bare.update("panel", "status", {"kind": "done", "text": traced(one_step())["summary"]})
    expect(bare.page.get_by_text(traced(one_step())["summary"])).to_have_count(1)


def offering():
    """A trace with a fix that was not tried."""
    trace = one_step()
    found, *others = trace.findings
    edits = (Edit("model.py", 41, 41, "hidden = hidden.to(x.device)", "hidden = hidden"),)
    offered = replace(found.fixes[0], edits=edits, code="", verified=False, not_tried="another thread runs, `Thread-4 (train)`")
    return replace(trace, findings=(replace(found, fixes=(offered, *found.fixes[1:])), *others), step_runs=1)


def test_a_fix_that_was_not_tried_has_a_button_that_asks_for_it(bare):
    bare.update("panel", "traced", traced(offering()))
    bare.page.get_by_role("tab", name="Findings").click()
    button = bare.page.get_by_role("button", name="Try it")
    expect(button).to_have_count(1)
    button.focus()
    bare.page.keyboard.press("Enter")
    sent = bare.sent("try")[0]
    assert (sent["finding"], sent["fix"]) == (0, 0)
    expect(button).to_be_disabled()
    bare.update("panel", "status", {"kind": "error", "text": "the model is gone"})
    expect(button).to_be_enabled()


def test_what_was_refused_stands_in_header_and_bars_as_red_as_it_is_wrong(browser):
    bare = BarePage(browser, split_model(), FULL, plotly=True)
    refused = bare.page.locator(".dw-meter-refused")
    expect(refused).to_have_count(1)
    expect(bare.page.locator(".dw-meter:has(.dw-meter-refused)")).to_have_attribute("data-device", "cuda:0")
    bare.page.locator(".dw-memory .point path").first.wait_for(state="attached")
    behind = bare.page.evaluate("""() => { const { layout } = document.querySelector('.dw-memory .dw-plot');
      return layout.shapes.filter(({ name }) => name === 'refused').map(({ x0, x1 }) => x1 - x0); }""")
    assert behind == [pytest.approx(3 * MIB, abs=1)]  # of 4 MiB that were asked for 1 had room
    bare.close()


def test_without_its_kernel_devices_are_still_told_apart(bare):
    bare.update("panel", "gone", True)
    dots = bare.page.locator(".dw-meter .dw-dot").evaluate_all(
        "(all) => all.map((each) => getComputedStyle(each).backgroundColor)"
    )
    assert len(set(dots)) == len(dots)
    looks = bare.page.locator(".dw-stale > :not(.dw-banner)").evaluate_all(
        "(all) => all.map((each) => getComputedStyle(each).filter)"
    )
    assert set(looks) == {"saturate(0.4)"}  # fainter, and no grey


def test_no_tab_is_dead_for_a_model_on_one_device(browser):
    bare = BarePage(browser, large(30))
    bare.page.get_by_role("tab", name="Devices").click()
    expect(bare.page.locator(".dw-drawn svg [data-mark=block]").first).to_be_visible()
    bare.close()
