"""The panel around the tree, in a bare page."""

import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from devwidget.records.explanation import Failure
from devwidget.records.finding import Edit
from devwidget.records.memory import Holding, MemoryPoint, Refusal
from devwidget.records.trace import Trace, Wait
from devwidget.report.page.content import compared_content, memory_content, traced_content
from devwidget.views.overlay import make_overlay
from devwidget.views.placement import tabulate_snapshot
from tests.browser.esm import BarePage
from tests.views.builders import GPU0, MIB, one_step, site, split_model, wrong_device


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
            "Enter a batch above (such as batch) and press Trace batch"
        )


def test_the_button_sends_what_was_typed_which_survives_new_offers(bare):
    batch = bare.page.get_by_label("batch", exact=True)
    expect(batch).to_have_value("batch")  # the best fitting variable
    batch.fill("next(iter(loader))")
    bare.update("panel", "inputs", {"batch": "", "names": ["other"]})
    bare.page.get_by_label("loss").fill("loss_fn")
    bare.page.get_by_label("keep going past device errors").uncheck()
    bare.answer("trace", {"state": "queued"})
    bare.page.get_by_role("button", name="Trace batch").click()
    sent = bare.sent("trace")[0]
    assert (sent["batch"], sent["loss"], sent["target"], sent["heal"]) == ("next(iter(loader))", "loss_fn", "", False)
    expect(bare.page.get_by_role("button", name="Trace batch")).to_be_disabled()
    expect(bare.page.get_by_role("button", name="Cancel")).to_be_visible()
    expect(bare.page.locator(".dw-status")).to_have_text("queued until the running cell ends")


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
    bare.update("live", "memory", running | {"over": 1})
    expect(legend).to_contain_text("activations and other new tensors")
    bare.update("panel", "memory", ended | {"drawn": 2})
    expect(legend).to_contain_text("tensors outside this model")
    bare.update("live", "memory", running | {"over": 1})
    expect(legend).to_contain_text("tensors outside this model")


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


FAILED = Trace(
    error="ValueError: no such thing",
    failure=Failure("ValueError", "no such thing", site(41, "raise ValueError(...)"), "decoder.head", ("a.py:1 in f",) * 3),
    checked=("wrong-device",),
)


def test_a_step_that_ended_by_an_exception_says_so_first_and_never_that_nothing_was_found(bare):
    bare.update("panel", "traced", traced(FAILED))
    bare.update("panel", "status", {"kind": "error", "text": "ended with an exception"})
    page = bare.page.get_by_role("tabpanel", name="Findings")
    expect(page).to_be_visible()
    card = page.locator(".dw-found >> nth=0")
    expect(card).to_contain_text("the step ended with ValueError")
    expect(card).to_contain_text("raise ValueError(...)")
    expect(page).not_to_contain_text("Nothing found")
    expect(card.get_by_text("a.py:1 in f").first).to_be_hidden()
    card.get_by_text("traceback, 3 frames").click()
    expect(card.get_by_text("a.py:1 in f").first).to_be_visible()
    card.get_by_role("button", name="decoder.head").click()
    expect(bare.page.locator("[data-path='decoder.head']")).to_have_attribute("aria-selected", "true")


LIVE = MemoryPoint(20, "forward", "decoder", None, 15 * MIB, parameters=3 * MIB, activations=10 * MIB, inputs=2 * MIB)
HELD = (Holding("activations", 5 * MIB, "forward", "encoder.layers.0.attention", site(41, "h = encoder(x)")),)
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
    bare.update("panel", "status", {"kind": "error", "text": "ended with an exception"})
    card = bare.page.locator(".dw-found >> nth=0")
    expect(card.locator(".dw-message")).to_have_text(re.compile("cuda:0 had no room for 4.00 MiB in forward of decoder"))
    expect(card.locator(".dw-fix code")).to_have_text(
        [
            re.compile(r"devwidget\.plan\(model, batch"),
            re.compile(r"model\.encoder\.layers\[0\]\.forward = functools\.partial\(torch\.utils\.checkpoint"),
        ]
    )
    expect(card.get_by_text("CUDA out of memory")).to_be_hidden()
    card.get_by_text("traceback, 1 frame").click()
    expect(card.get_by_text("CUDA out of memory")).to_be_visible()


def test_a_kept_trace_stands_beside_the_next_one(bare):
    fixed = replace(one_step(), findings=one_step().findings[1:], moves=one_step().moves[:2])
    bare.page.get_by_role("tab", name="Trace").click()
    bare.update("panel", "traced", traced(one_step()))
    bare.page.get_by_role("button", name="Compare later traces").click()
    assert len(bare.sent("keep")) == 1
    bare.update("panel", "compared", compared_content(one_step(), fixed))
    section = bare.page.locator(".dw-compared")
    expect(section.locator("h4")).to_have_text("1 finding fixed, 0 new, 1 left; 1 transfer fewer")
    expect(section.locator("> ul > li")).to_have_text("✓ fixed: addmm got tensors on cuda:0 and cuda:1")
    rows = [row.locator("td").all_text_contents() for row in section.locator("tbody tr").all()]
    assert ["transfers", "5", "4"] in rows
    assert rows[-1][1:] == ["1 transfer, 1.00 MiB", "none"]
    expect(section.locator("tr").last.locator(".dw-chip")).to_have_text(["cpu", "cuda:0"])


def test_the_form_is_one_line_at_every_width(bare):
    bare.update("panel", "status", {"kind": "busy", "text": "tracing …"})
    for width in (1600, 700, 560):
        bare.page.set_viewport_size({"width": width, "height": 700})
        boxes = [part.bounding_box() for part in bare.page.locator(".dw-inputs").locator("input, button").all()]
        middles = [box["y"] + box["height"] / 2 for box in boxes]
        assert max(middles) - min(middles) < 8, width
        assert max(box["x"] + box["width"] for box in boxes) <= width


def test_hops_are_listed_by_line(bare):
    bare.update("panel", "traced", traced(one_step()))
    bare.page.get_by_role("tab", name="Trace").click()
    first = bare.page.locator(".dw-hop-row").first
    expect(first).to_contain_text("1.00 MiB")
    expect(first.locator(".dw-chip")).to_have_text(["cpu", "cuda:0"])
    first.get_by_role("button", name="encoder.attention").click()
    expect(bare.page.locator("[data-path='encoder.attention']")).to_have_attribute("aria-selected", "true")


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


def test_two_views_of_one_panel_both_follow(bare):
    bare.page.evaluate("() => window.show('b')")
    bare.update("panel", "traced", traced(one_step()))
    for place_ in ("a", "b"):
        expect(bare.page.locator(f"#{place_}").get_by_role("tab", name="Findings")).to_contain_text("2")


def test_a_closed_view_leaves_no_listener(bare):
    bare.page.evaluate("() => window.stopA()")
    names = ("panel", "live", "control")
    left = bare.page.evaluate(
        "(names) => names.map((n) => Object.values(window.models[n].listeners).reduce((s, l) => s + l.size, 0))", names
    )
    assert left == [0, 0, 0]


def test_plain_keys_stay_inside_and_shift_enter_passes(bare):
    bare.page.evaluate("() => { window.seen = []; document.body.addEventListener('keydown', (e) => window.seen.push(e.key)) }")
    bare.page.get_by_role("treegrid").focus()
    for key in ("x", "d", "Shift+Enter", "Control+s"):
        bare.page.keyboard.press(key)
    assert bare.page.evaluate("() => window.seen.filter((key) => key.length === 1 || key === 'Enter')") == ["Enter", "s"]


def test_after_a_restart_everything_that_needs_the_kernel_says_that_it_is_gone(bare):
    bare.update("panel", "traced", traced(one_step()))
    page, gone = bare.page, "The kernel was restarted. Re-run the cell"
    page.evaluate("() => window.models.panel.fire('comm_live_update')")
    expect(page.locator(".dw-banner")).to_contain_text("restarted")
    asked = page.evaluate("() => window.models.control.sent.length")
    for entry in ("Copy text report", "Save as HTML", "Save tensors as CSV"):
        bare.update("panel", "status", {"kind": "done", "text": "before"})
        page.get_by_label("Export").click()
        page.get_by_role("button", name=entry).click()
        expect(page.locator(".dw-status")).to_contain_text(gone)
    bare.update("panel", "status", {"kind": "done", "text": "before"})
    page.get_by_role("tab", name="Trace").click()
    page.get_by_role("button", name="Compare later traces").click()
    expect(page.locator(".dw-status")).to_contain_text(gone)
    expect(page.get_by_role("button", name="Trace batch")).to_be_disabled()
    assert page.evaluate("() => window.models.control.sent.length") == asked


def test_a_module_that_python_chooses_is_shown_from_any_tab(bare):
    bare.page.get_by_role("tab", name="Findings").click()
    bare.update("panel", "chosen", {"path": "decoder.head", "at": 1})
    expect(bare.page.locator("[data-path='decoder.head']")).to_have_attribute("aria-selected", "true")
    expect(bare.page.locator(".dw-detail")).to_contain_text("f32[1000, 512]")


def test_a_file_is_saved_as_python_writes_it_and_the_word_of_it_gives_the_summary_back(bare):
    bare.update("panel", "status", {"kind": "done", "text": "2 errors"})
    bare.answer("export", {"text": "{}", "name": "x.json", "mime": "application/json"})
    bare.page.get_by_label("Export").click()
    with bare.page.expect_download() as download:
        bare.page.get_by_role("button", name="Save snapshot as JSON").click()
    assert download.value.suggested_filename == "x.json"
    expect(bare.page.locator(".dw-status")).to_have_text("saved x.json")
    expect(bare.page.locator(".dw-status")).to_have_text("2 errors")


def test_no_part_of_memory_has_the_colour_of_a_device(bare):
    fills = looks(bare.page.locator(".dw-legend i"), "backgroundColor")
    assert len(fills) > 3
    assert not set(fills) & set(looks(bare.page.locator(".dw-meter .dw-dot"), "backgroundColor"))


def offering():
    """A trace with a fix that was not tried."""
    trace = one_step()
    found, *others = trace.findings
    edits = (Edit("model.py", 41, 41, "hidden = hidden.to(x.device)", "hidden = hidden"),)
    offered = replace(
        found.fixes[0], edits=edits, code="", verified=False, not_tried="another thread is running: `Thread-4 (train)`"
    )
    return replace(trace, findings=(replace(found, fixes=(offered, *found.fixes[1:])), *others), step_runs=1)


def test_a_fix_that_was_not_tried_has_a_button_that_asks_for_it(bare):
    bare.update("panel", "traced", traced(offering()))
    bare.page.get_by_role("tab", name="Findings").click()
    button = bare.page.get_by_role("button", name="Verify fix")
    expect(button).to_have_count(1)
    button.focus()
    bare.page.keyboard.press("Enter")
    sent = bare.sent("try")[0]
    assert (sent["finding"], sent["fix"]) == (0, 0)
    expect(button).to_be_disabled()
    bare.update("panel", "status", {"kind": "error", "text": "the model no longer exists"})
    expect(button).to_be_enabled()


def test_a_deleted_model_leaves_its_last_state_fainter_with_devices_told_apart(bare):
    bare.update("panel", "gone", True)
    expect(bare.page.locator(".dw-banner")).to_contain_text("deleted")
    expect(bare.page.get_by_role("button", name="Trace batch")).to_be_disabled()
    dots = looks(bare.page.locator(".dw-meter .dw-dot"), "backgroundColor")
    assert len(set(dots)) == len(dots)
    assert set(looks(bare.page.locator(".dw-stale > :not(.dw-banner)"), "filter")) == {"saturate(0.4)"}  # no grey


def looks(parts, name):
    return parts.evaluate_all("(all, name) => all.map((each) => getComputedStyle(each)[name])", name)


@pytest.mark.parametrize(
    ("trace", "said", "not_said"),
    [
        (Trace(), "No code ran, so nothing was checked.", "✓"),
        (Trace(checked=("wrong-device",), not_checked=("ping-pong: no backward",)), "ping-pong: no backward", "No code ran"),
    ],
    ids=["nothing ran", "clean"],
)
def test_a_trace_without_findings_says_what_was_checked(bare, trace, said, not_said):
    bare.update("panel", "traced", traced(trace))
    bare.page.get_by_role("tab", name="Findings").click()
    page = bare.page.get_by_role("tabpanel", name="Findings")
    expect(page).to_contain_text(said)
    expect(page).not_to_contain_text(not_said)
    assert page.get_by_text("No findings").is_visible() == bool(trace.checked)


def test_lines_that_wait_are_a_table_below_the_hops(bare):
    line = site(44, "return y * y.max().item()")
    bare.update("panel", "traced", traced(replace(one_step(), waits=(Wait("item", GPU0, "decoder", "forward", line, False),))))
    bare.page.get_by_role("tab", name="Trace").click()
    page = bare.page.get_by_role("tabpanel", name="Trace")
    expect(page.locator(".dw-code-line", has_text=line.text)).to_be_visible()
    expect(page.locator(".dw-wait-row").locator("td").nth(1)).to_have_text("1")
    expect(page.locator(".dw-wait-row")).to_contain_text("item forward")


def test_the_button_says_that_later_traces_are_compared_until_there_is_another_one(bare):
    first, second = one_step(), replace(one_step(), moves=())
    bare.update("panel", "traced", traced(first))
    bare.answer("keep", {})
    bare.page.get_by_role("tab", name="Trace").click()
    bare.page.get_by_role("button", name="Compare later traces").click()
    assert len(bare.sent("keep")) == 1
    bare.update("panel", "compared", compared_content(first, first))
    expect(bare.page.get_by_role("button", name="Compared with later traces")).to_have_attribute("aria-pressed", "true")
    bare.update("panel", "traced", traced(second))
    bare.update("panel", "compared", compared_content(first, second))
    expect(bare.page.get_by_role("button", name="Compare later traces")).to_have_attribute("aria-pressed", "false")


def test_what_is_typed_and_ticked_is_the_same_in_two_views(bare):
    bare.page.evaluate("() => window.show('b')")
    one, other = (bare.page.locator(place_) for place_ in ("#a", "#b"))
    one.get_by_label("keep going past device errors").uncheck()
    one.get_by_label("loss").fill("loss_fn")
    expect(other.get_by_label("keep going past device errors")).not_to_be_checked()
    expect(other.get_by_label("loss")).to_have_value("loss_fn")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_was_cancelled_is_no_error(bare, scheme):
    bare.page.emulate_media(color_scheme=scheme)
    bare.update("panel", "status", {"kind": "refused", "text": "`bath` is not defined"})
    red = looks(bare.page.locator(".dw-status"), "color")
    bare.update("panel", "status", {"kind": "cancelled", "text": "cancelled; the model was restored"})
    expect(bare.page.get_by_role("status").first).to_have_text("cancelled; the model was restored")
    assert looks(bare.page.locator(".dw-status"), "color") != red


def test_no_tooltip_has_a_backtick(bare):
    bare.update("panel", "traced", traced(one_step()))
    for tab in bare.page.get_by_role("tab").all():
        tab.click()
    tips = bare.page.evaluate(
        "() => [...document.querySelectorAll('[title], [aria-label]')].flatMap((e) => [e.title, e.ariaLabel])"
    )
    drawn = bare.page.locator("svg title").all_text_contents()
    assert [tip for tip in (*tips, *drawn) if tip and "`" in tip] == []


def test_a_peak_that_was_passed_is_no_longer_said(bare):
    used = next(memory for memory in split_model().memory if memory.total)
    content = memory_content([used], one_step())
    assert "peak 8.00 MiB" in content["meters"][0]["words"]
    more = memory_content([replace(used, activations=5 * MIB, free=0)], one_step())
    bare.update("panel", "memory", more)
    expect(bare.page.get_by_role("button", name="cuda:0")).not_to_contain_text("peak")
