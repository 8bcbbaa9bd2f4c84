"""The page of a layout, of real ones: nothing sticks out at any width, axe is silent, and keys suffice."""

import functools
import json

import pytest
import torch
from playwright.sync_api import expect

import devwidget
from devwidget.extras.plan.screen.layout_panel import LAYOUT, LayoutWidget
from devwidget.extras.plan.screen.plan_panel import PLAN_STYLES
from devwidget.report.page.assets import join_modules, static_text
from devwidget.report.page.html import as_value
from tests.browser.chromium import Watched
from tests.browser.esm import LIVE_HOST
from tests.extras.browser.plans import check_widths_and_schemes, ids, make_model

pytest.importorskip("accelerate")
MEMORY = {"fits": ["3GiB", "2GiB", "2GiB"], "fits by less": [], "does not fit": ["1GiB", "1GiB"]}


@functools.cache
def layout_of(state):
    """A layout of one of three answers; the one that is close has on each GPU hardly more than the first one takes."""
    memory = MEMORY[state] or [max(int(gpu.on_card * 1.005), 1 << 20) for gpu in layout_of("fits").devices]
    layout = devwidget.place(make_model(4), ids(4), gpus=len(memory), memory=memory, optimizer=torch.optim.AdamW)
    assert layout.fit == state
    return layout


@pytest.mark.parametrize("state", ["fits", *(pytest.param(name, marks=pytest.mark.slow) for name in (
    "fits by less", "does not fit"))])  # fmt: skip
def test_nothing_sticks_out_and_axe_is_silent(opened, state):
    page = opened(layout_of(state).to_html())
    for details in page.locator("details").all():
        details.evaluate("(each) => { each.open = true }")
    check_widths_and_schemes(page, f"place-{state}")


START = """
const host = pageHost({ layout: { state: facts, definition: layout } });
host.getWidget("layout").then((widget) => widget.render({ el: document.getElementById("a") }));
"""


@pytest.fixture
def live(browser):
    opened = []

    def open_live(state, **more):
        view = LayoutWidget(layout_of(state)).view
        opened.append(Watched(browser, viewport={"width": 1280, "height": 1000}, **more))
        page = opened[-1].page
        page.route(
            "https://notebook.test/*",
            lambda route: route.fulfill(body="<html lang=en><body><main id=a></main></body></html>", content_type="text/html"),
        )
        page.goto("https://notebook.test/")
        for name in ("page.css", *PLAN_STYLES):
            page.add_style_tag(content=static_text(name))
        facts = {name: getattr(view, name) for name in ("words", "page")}
        scripts = LIVE_HOST, as_value("layout", join_modules(*LAYOUT)), f"const facts = {json.dumps(facts)};"
        page.add_script_tag(content="\n".join((*scripts, START)))
        expect(page.locator(".dw-columns").first).to_be_visible()
        return page

    yield open_live
    for watched in opened:
        watched.close()


@pytest.mark.slow
def test_with_its_button_nothing_sticks_out_and_axe_is_silent(live):
    check_widths_and_schemes(live("fits"), "place-live")


def test_keys_alone_copy_the_device_map(live):
    page = live("fits", permissions=["clipboard-read", "clipboard-write"])
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Copy device map")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".dw-primary")).to_have_text("copied")
    assert page.evaluate("navigator.clipboard.readText()") == repr(layout_of("fits").device_map)
