"""Every state of the panel: nothing sticks out at any of four widths, and axe is silent in both themes.

`make shots` keeps pictures of them.
"""

import os
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from devwidget.records.device import DeviceId
from devwidget.records.snapshot import ModuleFacts, Snapshot
from devwidget.report.page.content import applied_content, compared_content
from tests.browser.axe import violations_in_both_schemes
from tests.browser.chromium import Watched
from tests.browser.esm import BarePage, large
from tests.browser.lab import ARTIFACTS
from tests.browser.test_esm_panel import FULL
from tests.browser.test_verdict import MENDS, mendable
from tests.sampling import as_slow
from tests.views.builders import CPU, data_parallel, one_step, site, split_model, tensor
from tests.views.test_repeats import stack

FAILED = replace(one_step(), error="RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x512 and 256x1000)")
LINE = replace(
    site(41), text="result = self.decoder.head(self.encoder(batch_of_tokens).to(self.last), mask=self.encoder.attention.mask)"
)
LONG = replace(one_step(), moves=tuple(replace(move, site=LINE) for move in one_step().moves))
CLEAN = replace(one_step(), findings=(), checked=("wrong-device", "unregistered-tensor", "ping-pong"), not_checked=())


def on_one(device, virtual=0):
    """A small model that is wholly on one device, on a machine without GPUs."""
    weight = tensor("weight", (512, 512), device, storage=1)
    modules = (ModuleFacts("", "Net", -1, 0), ModuleFacts("layer", "Linear", 0, 1, (weight,)))
    return Snapshot(modules, memory=tuple(each for each in split_model().memory if each.device == CPU), virtual_gpus=virtual)


def busy(bare):
    bare.update("panel", "status", {"kind": "busy", "text": "tracing … forward of decoder.head"})
    expect(bare.page.get_by_role("button", name="Cancel")).to_be_visible()


def refused(bare):
    text = "the batch expression `bath` raised NameError: name 'bath' is not defined; did you mean 'batch'?"
    bare.update("panel", "status", {"kind": "error", "text": text})
    expect(bare.page.locator(".dw-status-error")).to_be_visible()


def deleted(bare):
    bare.update("panel", "gone", True)
    expect(bare.page.locator(".dw-banner")).to_contain_text("deleted")


def restarted(bare):
    bare.page.evaluate("() => window.models.panel.fire('comm_live_update')")
    expect(bare.page.locator(".dw-banner")).to_contain_text("restarted")


def opened(name):
    return lambda bare: bare.page.get_by_role("tab", name=name).click()


def detailed(bare):
    bare.page.locator("[data-path='encoder.attention']").click()
    expect(bare.page.locator(".dw-detail")).to_be_visible()


def filtered(bare):
    bare.page.get_by_label("filter rows").fill("nothing like this")
    expect(bare.page.get_by_role("treegrid")).to_contain_text("No row matches the filter")


def with_menu(bare):
    bare.page.get_by_label("Export").click()
    expect(bare.page.get_by_role("button", name="Save figure as SVG")).to_be_visible()


def applied(bare):
    bare.update("panel", "applied", {"works": "now", "traced": True, "cells": [], **applied_content(MENDS)})
    bare.update("panel", "compared", compared_content(one_step(), CLEAN))
    opened("Findings")(bare)
    expect(bare.page.locator(".dw-compared")).to_be_visible()
    expect(bare.page.get_by_role("button", name="Undo")).to_be_visible()


def questioned(bare):
    bare.answer("apply", {"cells": [], "files": ["train.py"]})
    bare.page.get_by_role("button", name="Apply and trace again").click()
    expect(bare.page.get_by_role("button", name="Do not overwrite")).to_be_visible()


def unfolded(bare):
    bare.page.get_by_role("button", name="unfold").click()
    expect(bare.page.get_by_role("button", name="fold 12")).to_be_visible()


STATES = {
    "modules": (split_model(), one_step(), opened("Modules")),
    "findings": (split_model(), one_step(), opened("Findings")),
    "unfolded": (stack(12), None, unfolded),
    "mendable": (split_model(), mendable(), opened("Findings")),
    "questioned": (split_model(), mendable(), questioned),
    "applied": (split_model(), CLEAN, applied),
    "hops": (split_model(), LONG, opened("Trace")),
    "curves": (split_model(), one_step(), opened("Memory")),
    "devices": (stack(16, lambda block: DeviceId("cuda", block // 2)), one_step(), opened("Devices")),
    "out-of-memory": (split_model(), FULL, opened("Findings")),
    "out-of-memory-curves": (split_model(), FULL, opened("Memory")),
    "no-gpu": (on_one(CPU), None, lambda bare: None),
    "no-batch": (split_model(), None, opened("Trace")),
    "tracing": (split_model(), None, busy),
    "refused": (split_model(), None, refused),
    "failed": (split_model(), FAILED, opened("Findings")),
    "clean": (split_model(), CLEAN, opened("Findings")),
    "parallel": (split_model(), data_parallel(4), opened("Devices")),
    "deleted": (split_model(), one_step(), deleted),
    "restarted": (split_model(), one_step(), restarted),
    "detail": (split_model(), one_step(), detailed),
    "no-row": (split_model(), one_step(), filtered),
    "menu": (split_model(), one_step(), with_menu),
    "ten-thousand": (large(10_000), None, lambda bare: None),
}


IN_MAKE_TEST = ("hops", "mendable", "parallel")
OVER = """() => [...document.querySelectorAll('.dw-panel *')]
  .filter((each) => each.clientWidth && !each.closest('.dw-hidden, svg, .main-svg'))
  .filter((each) => getComputedStyle(each).clipPath === 'none')
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
  .map((each) => each.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize("name", [name if name in IN_MAKE_TEST else as_slow(name) for name in STATES])
def test_screenshots_of_every_state(browser, name):
    check_state(browser, name, *STATES[name])


def check_state(browser, name, snapshot, trace, bring, **state):
    """What is said above, of one state."""
    bare = BarePage(browser, snapshot, trace, state=state, plotly=True, viewport={"width": 1000, "height": 700})
    bring(bare)
    for width in (1600, 1280, 910, 700):
        bare.page.set_viewport_size({"width": width, "height": 700})
        # Figures follow the width when the page comes to it.
        bare.page.wait_for_function(f"document.documentElement.scrollWidth <= innerWidth && ({OVER})().length === 0")
        if "PICTURES" in os.environ:
            keep_pictures(bare.page, f"state-{name}", width)
    assert violations_in_both_schemes(bare.page) == []
    bare.close()


def keep_pictures(page, name, width):
    ARTIFACTS.mkdir(exist_ok=True)
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(200)  # figures are drawn again for the new width
        page.screenshot(path=ARTIFACTS / f"{name}-{scheme}-{width}.png", full_page=True)


def test_an_error_in_the_console_fails_its_test(browser):
    watched = Watched(browser)
    watched.page.evaluate("() => console.error('broken')")
    with pytest.raises(AssertionError, match="in the console: \\['broken'\\]"):
        watched.close()
