"""The verdict above the tabs, pressed in a bare page: what it says first, which button it has, and what it answers."""

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from devwidget.records.finding import Edit, Fix
from devwidget.records.trace import Trace
from devwidget.report.page.content import applied_content, compared_content
from tests.browser.esm import BarePage
from tests.browser.test_esm_panel import FAILED, FULL, traced
from tests.views.builders import data_parallel, one_step, split_model

OLD, NEW = "        mask = torch.full((n, n), -1.0).triu(1)", "        mask = torch.full((n, n), -1.0, device=x.device).triu(1)"
MENDS = Fix("make it on the device of `x`", "", "sure", True, (Edit("/home/ada/train.py", 17, 17, NEW, OLD),))
CLEAN = Trace(checked=("wrong-device", "ping-pong"))


def mendable():
    """Two errors, a warning and a hint; the first has an edit that was tried."""
    first, second = one_step().findings
    slow = replace(second, severity="warning", kind="host-sync", headline="`loss.item()` syncs with cuda:0", fixes=())
    hint = replace(second, severity="info", kind="needless-hop", headline="`order` is copied", fixes=(Fix("make it once"),))
    return replace(one_step(), findings=(replace(first, fixes=(MENDS, *first.fixes)), second, slow, hint))


@pytest.fixture
def bare(browser):
    opened = BarePage(browser, split_model(), mendable())
    opened.update("panel", "status", {"kind": "done", "text": "2 errors"})
    yield opened
    opened.close()


def verdict(bare):
    return bare.page.locator(".dw-verdict")


def test_the_answer_and_its_button_stand_in_the_first_130_pixels(bare):
    for width in (1600, 1280, 910, 700):
        bare.page.set_viewport_size({"width": width, "height": 700})
        top = bare.page.locator(".dw-panel").bounding_box()["y"]
        for part in (verdict(bare).locator("b"), verdict(bare).get_by_role("button", name="Apply and trace again")):
            box = part.bounding_box()
            assert box["y"] + box["height"] - top <= 130, width


def test_one_button_is_filled_at_a_time(bare):
    filled = """(buttons) => buttons.filter((each) => each.offsetParent)
      .filter((each) => getComputedStyle(each).backgroundColor !== "rgba(0, 0, 0, 0)")
      .map((each) => each.textContent)"""
    assert bare.page.locator(".dw-primary").evaluate_all(filled) == ["Apply and trace again"]
    bare.update("panel", "traced", traced(CLEAN))
    assert bare.page.locator(".dw-primary").evaluate_all(filled) == ["Trace batch"]


def test_the_next_finding_is_one_key_away(bare):
    following = verdict(bare).get_by_role("button", name="next finding")
    following.focus()
    bare.page.keyboard.press("Enter")
    expect(verdict(bare)).to_contain_text("attention.mask stayed on cpu")
    expect(verdict(bare)).to_contain_text("2 of 4")
    expect(following).to_be_focused()
    bare.page.keyboard.press("Enter")
    bare.page.keyboard.press("Enter")
    expect(verdict(bare)).to_contain_text("4 of 4")
    bare.page.keyboard.press("Enter")
    expect(verdict(bare)).to_contain_text("1 of 4")
    verdict(bare).get_by_role("button", name="previous finding").press("Enter")
    expect(verdict(bare)).to_contain_text("4 of 4")


def test_outside_of_a_notebook_it_says_where_the_edit_goes(bare):
    cell = {"number": 3, "raw": "x", "first": 1, "old": ["x"], "new": ["y"]}
    bare.answer("apply", {"cells": [cell], "files": [], "works": "now"})
    verdict(bare).get_by_role("button", name="Apply and trace again").click()
    expect(verdict(bare).get_by_role("alert")).to_contain_text("Only JupyterLab and Notebook 7 let a panel edit a cell.")
    expect(verdict(bare).get_by_role("alert")).to_contain_text("Copy the lines above to train.py:17, run it, and trace again")
    assert bare.sent("applied") == []


def test_a_file_is_written_after_a_question(bare):
    bare.answer("apply", {"cells": [], "files": ["train.py"], "works": "now"})
    bare.answer("applied", {"state": "done"})
    verdict(bare).get_by_role("button", name="Apply and trace again").click()
    expect(verdict(bare).get_by_role("alert")).to_contain_text("Overwrite train.py?")
    expect(verdict(bare).get_by_role("button", name="Overwrite", exact=True)).to_be_focused()
    assert bare.sent("applied") == []
    bare.page.keyboard.press("Enter")
    assert len(bare.sent("applied")) == 1
    assert (bare.sent("apply")[0]["finding"], bare.sent("apply")[0]["fix"]) == (0, 0)


@pytest.mark.parametrize("end", ["restarted", "deleted"])
def test_after_the_end_no_step_can_be_asked_for_and_no_file_written(bare, end):
    bare.answer("apply", {"cells": [], "files": ["train.py"], "works": "now"})
    verdict(bare).get_by_role("button", name="Apply and trace again").click()
    expect(verdict(bare).get_by_role("alert")).to_be_visible()
    if end == "restarted":
        bare.page.evaluate("() => window.models.panel.fire('comm_live_update')")
    else:
        bare.update("panel", "gone", True)
    expect(bare.page.locator(".dw-banner")).to_contain_text(end)
    expect(verdict(bare).get_by_role("alert")).to_have_count(0)
    asking = bare.page.locator(".dw-primary, .dw-try, .dw-apply-this, .dw-undo")
    assert asking.count() > 2
    assert [button.text_content() for button in asking.all() if button.is_enabled()] == []


def test_after_it_before_and_after_stand_there_by_themselves_with_the_way_back(bare):
    bare.answer("undo", {"state": "done"})
    bare.update("panel", "applied", {"works": "now", "traced": True, "cells": [], **applied_content(MENDS)})
    bare.update("panel", "traced", traced(CLEAN))
    bare.update("panel", "compared", compared_content(mendable(), CLEAN))
    bare.update("panel", "status", {"kind": "done", "text": "nothing found"})
    expect(verdict(bare)).to_contain_text("Edited train.py:17 and traced again")
    expect(verdict(bare)).to_contain_text("The change is live")
    expect(bare.page.locator(".dw-compared")).to_be_visible()
    expect(bare.page.locator(".dw-compared .dw-change")).to_have_text("5→0hops")
    verdict(bare).get_by_role("button", name="Undo").click()
    assert len(bare.sent("undo")) == 1


def test_a_step_that_did_not_fit_offers_to_trace_the_samples_that_do(bare):
    bare.update("panel", "traced", traced(FULL))
    bare.page.get_by_label("batch", exact=True).fill("images")
    button = verdict(bare).get_by_role("button", name="Trace with 51 samples")
    button.click()
    (asked,) = bare.sent("trace")
    assert (asked["batch"], asked["samples"]) == ("images", 51)


def test_a_gpu_without_samples_offers_to_trace_the_samples_that_reach_all(bare):
    idle = replace(
        one_step().findings[1], severity="info", kind="parallel-io", headline="a batch of 5 reaches 3 of 4 GPUs", fixes=()
    )
    bare.update("panel", "traced", traced(replace(data_parallel(4, samples=5), findings=(idle,))))
    verdict(bare).get_by_role("button", name="Trace with 4 samples").click()
    bare.update("panel", "status", {"kind": "done", "text": "1 hint"})
    bare.page.get_by_role("tab", name="Devices").click()
    advice = bare.page.locator(".dw-advice", has_text="A batch of 4 samples is split evenly: 1 sample for each of the 4 GPUs.")
    advice.get_by_role("button", name="Trace with 4 samples").click()
    assert [asked["samples"] for asked in bare.sent("trace")] == [4, 4]


def test_a_fault_that_ended_the_step_is_one_card(bare):
    trace = mendable()
    fault = replace(trace.faults[0], healed=False, error=FAILED.error)
    found = replace(trace.findings[0], explains=(fault.number,))
    bare.update("panel", "traced", traced(replace(FAILED, findings=(found,), faults=(fault,))))
    bare.page.get_by_role("tab", name="Findings").click()
    expect(bare.page.locator(".dw-finding")).to_have_count(1)
    expect(bare.page.locator(".dw-finding")).to_contain_text("no such thing")
    expect(bare.page.get_by_role("tab", name="Findings")).to_have_text("Findings1")
