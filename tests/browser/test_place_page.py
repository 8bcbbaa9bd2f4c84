"""The page of a layout, of real ones: at each width and in both schemes nothing sticks out, and axe is silent."""

import functools
import json
import os

import pytest
import torch
from PIL import Image
from playwright.sync_api import expect

import devwidget
from devwidget.report.page.assets import LAYOUT, PLAN_STYLES, join_modules, static_text
from devwidget.report.page.html import as_value
from devwidget.ui.layout_panel import LayoutWidget
from tests.browser.axe import violations
from tests.browser.chromium import Watched
from tests.browser.test_plan_page import OVER, ids, make_model

pytest.importorskip("accelerate")
MEMORY = {"fits": ["7GiB", "5GiB", "3GiB"], "fits by less": [], "does not fit": ["2GiB", "1GiB"]}


@functools.cache
def layout_of(state):
    """A layout of one of three answers; the one that is close has on each GPU hardly more than the first one takes."""
    if state == "fits by less":
        memory = [max(int(gpu.on_card * 1.005), 1 << 20) for gpu in layout_of("fits").devices]
    else:
        memory = MEMORY[state]
    layout = devwidget.place(make_model(), ids(4), gpus=len(memory), memory=memory, optimizer=torch.optim.AdamW)
    assert layout.fit == state
    return layout


@pytest.fixture
def show(browser, tmp_path):
    opened = []

    def open_page(state, width=1280, scheme="light"):
        path = tmp_path / "layout.html"
        layout_of(state).to_html(path)
        opened.append(Watched(browser, viewport={"width": width, "height": 1000}, color_scheme=scheme, offline=True))
        opened[-1].page.goto(path.as_uri())
        return opened[-1].page

    yield open_page
    for watched in opened:
        watched.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [700, 910, 1280, 1600])
@pytest.mark.parametrize("state", MEMORY)
def test_nothing_sticks_out_and_axe_is_silent(show, state, width, scheme):
    page = show(state, width, scheme)
    for details in page.locator("details").all():
        details.evaluate("(each) => { each.open = true }")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(OVER) == []
    assert violations(page) == []
    if folder := os.environ.get("SHOTS"):
        page.screenshot(path=f"{folder}/place-{state.replace(' ', '_')}-{scheme}-{width}.png", full_page=True)


def test_a_layout_stands_beside_what_accelerate_proposes(show):
    page, layout = show("fits"), layout_of("fits")
    expect(page.locator(".dw-columns")).to_have_count(2)
    expect(page.locator(".dw-verdict")).to_contain_text("Fits on 2 of 3 GPUs, 2 hops")
    assert layout.auto is not None
    rows = page.locator(".dw-plan-table").first.locator("tbody tr")
    for row, devices in zip(rows.all(), (layout.devices, layout.auto.devices), strict=True):
        for gpu in devices:
            expect(row).to_contain_text(f"{gpu.on_card / (1 << 30):.2f} GiB" if gpu.on_card else "0 B")
    assert layout.auto.fits == all(gpu.on_card <= gpu.capacity for gpu in layout.auto.devices)


def test_accelerates_map_takes_what_a_plan_of_it_takes():
    layout = layout_of("fits")
    plan = devwidget.plan(make_model(), ids(4), memory=MEMORY["fits"], placement="auto", optimizer=torch.optim.AdamW)
    assert [gpu.on_card for gpu in layout.auto.devices] == [gpu.on_card for gpu in plan.devices]
    places = dict(plan.device_map)
    for block, place in zip(layout.blocks, layout.auto.places, strict=True):
        assert str(place) == places[block.path]


def test_a_layout_that_is_saved_keeps_what_stands_beside_it(tmp_path):
    path = layout_of("fits").save(tmp_path / "layout.json")
    assert devwidget.load(path) == layout_of("fits")
    assert devwidget.load(path).to_html() == layout_of("fits").to_html()


START = """
const host = pageHost({ layout: { state: facts, definition: layout } });
host.getWidget("layout").then((widget) => widget.render({ el: document.getElementById("a") }));
"""


@pytest.fixture
def live(browser):
    opened = []

    def open_live(state, width=1280, scheme="light", **more):
        view = LayoutWidget(layout_of(state)).view
        opened.append(Watched(browser, viewport={"width": width, "height": 1000}, color_scheme=scheme, **more))
        page = opened[-1].page
        page.route(
            "https://notebook.test/*",
            lambda route: route.fulfill(body="<html lang=en><body><main id=a></main></body></html>", content_type="text/html"),
        )
        page.goto("https://notebook.test/")
        for name in ("page.css", *PLAN_STYLES):
            page.add_style_tag(content=static_text(name))
        facts = {name: getattr(view, name) for name in ("words", "page", "share")}
        scripts = join_modules("shim.js"), as_value("layout", join_modules(*LAYOUT)), f"const facts = {json.dumps(facts)};"
        page.add_script_tag(content="\n".join((*scripts, START)))
        expect(page.locator(".dw-columns").first).to_be_visible()
        return page

    yield open_live
    for watched in opened:
        watched.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [700, 910, 1280, 1600])
def test_with_its_buttons_nothing_sticks_out_and_axe_is_silent(live, width, scheme):
    page = live("fits", width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(OVER) == []
    assert violations(page) == []
    if folder := os.environ.get("SHOTS"):
        page.screenshot(path=f"{folder}/place-live-{scheme}-{width}.png", full_page=True)


def test_keys_alone_copy_the_device_map(live):
    page = live("fits", permissions=["clipboard-read", "clipboard-write"])
    for name in ("Save picture to share (PNG)", "Copy device map"):
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name=name)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".dw-status")).to_have_text("the device map is on the clipboard")
    assert page.evaluate("navigator.clipboard.readText()") == repr(layout_of("fits").device_map)


@pytest.mark.parametrize("state", MEMORY)
def test_a_layout_is_saved_as_one_picture(live, state):
    page = live(state)
    with page.expect_download() as saving:
        page.get_by_role("button", name="Save picture to share (PNG)").click()
    assert saving.value.suggested_filename == "LlamaForCausalLM-layout.png"
    with Image.open(saving.value.path()) as picture:
        assert (picture.format, picture.size) == ("PNG", (1200, 630))
    if folder := os.environ.get("SHOTS"):
        saving.value.save_as(f"{folder}/share-layout-{state.replace(' ', '_')}.png")
