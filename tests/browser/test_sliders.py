"""Sliders over a plan in a page: what they say is what Python says, without asking it."""

import json
import os

import pytest

from devwidget.records.answers import Fitted, FittedGpu
from devwidget.records.device import DeviceId
from devwidget.report.page.assets import SLIDERS, join_modules, static_text
from devwidget.report.page.html import as_value
from devwidget.ui.sliders import sliders_content
from tests.browser.chromium import Watched

GIB = 1 << 30
BATCHES, LENGTHS = (1, 8, 16, 32), (64, 128, 256)
TAKEN = tuple(GIB + (b * n << 20) + (b * n * n << 10) for b in BATCHES for n in LENGTHS)
FITTED = Fitted(
    "GPT2LMHeadModel", "A100-80GB", BATCHES, LENGTHS, (8, 128),
    tuple(FittedGpu(DeviceId("cuda", index), 16 * GIB, tuple(size // (index + 1) for size in TAKEN)) for index in (0, 1)),
    checked=3, off=0.004,
)  # fmt: skip


@pytest.fixture
def page(browser):
    watched = Watched(browser, viewport={"width": 900, "height": 500})
    style = "".join(f"<style>{static_text(name)}</style>" for name in ("base.css", "sliders.css"))
    watched.page.set_content(f"{style}<main id=a></main>")
    start = (
        f"const content = {json.dumps(sliders_content(FITTED))}; const model = {{ get: () => content, on() {{}}, off() {{}} }};"
        "sliders.render({ model, el: document.getElementById('a') });"
    )
    watched.page.add_script_tag(content=f"{as_value('sliders', join_modules(*SLIDERS))}\n{start}")
    yield watched.page
    watched.close()


def move(page, name, value):
    page.get_by_label(name).evaluate("(input, v) => { input.value = v; input.dispatchEvent(new Event('input')); }", str(value))


def words(page, device):
    return page.locator(f".dw-taken[data-device='{device}'] .dw-taken-words").inner_text()


def test_the_page_says_what_python_says_at_every_size(page):
    for batch in (1, 5, 8, 31, 32):
        for length in (64, 100, 200, 256):
            move(page, "batch", batch)
            move(page, "length of texts", length)
            sizes = FITTED.estimate_at(batch, length)
            for device, size in zip(("cuda:0", "cuda:1"), sizes, strict=True):
                number = size / GIB if size >= GIB else size / (1 << 20)
                assert abs(float(words(page, device).split()[0]) - number) <= 0.006 * number
                assert ("fits" in words(page, device)) == (size <= 16 * GIB)
    if folder := os.environ.get("SHOTS"):
        move(page, "batch", 20)
        page.locator(".dw-sliders").screenshot(path=f"{folder}/sliders.png")


def test_what_was_run_and_what_is_estimated_is_told(page):
    assert "This size was run." in page.locator(".dw-sliders").inner_text()
    move(page, "batch", 9)
    assert "Estimated between sizes that were run." in page.locator(".dw-sliders").inner_text()
    assert "12 plans run, for batches of 1, 8, 16, 32 and texts of 64, 128, 256; 3 more in between" in (
        page.locator(".dw-sliders").inner_text()
    )


def test_with_less_memory_it_does_not_fit(page):
    assert "fits" in words(page, "cuda:0")
    move(page, "memory of each GPU", 2)
    assert "of 2.00 GiB" in words(page, "cuda:0")
    assert "too much" in words(page, "cuda:0")
