"""Every state of the panel that is not the usual one: accessible, and drawn in both themes and four widths.

`make shots` keeps pictures of them.
"""

import os
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from devwidget.records.device import DeviceId
from devwidget.records.snapshot import ModuleFacts, Snapshot
from devwidget.records.trace import ModuleEvent, Trace
from devwidget.report.page.content import applied_content, compared_content, proposed_content
from devwidget.views.placement import tabulate_snapshot
from tests.browser.axe import violations
from tests.browser.chromium import Watched
from tests.browser.esm import BarePage, large
from tests.browser.lab import ARTIFACTS
from tests.browser.test_esm_panel import FULL
from tests.browser.test_verdict import MENDS, mendable
from tests.browser.test_watch import watched
from tests.views.builders import CPU, data_parallel, one_step, split_model, tensor
from tests.views.test_proposed_map import GPU0, GPU1, layout
from tests.views.test_repeats import stack

FAILED = replace(one_step(), error="RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x512 and 256x1000)")
CLEAN = replace(one_step(), findings=(), checked=("wrong-device", "unregistered-tensor", "ping-pong"), not_checked=())


def on_one(device, virtual=0):
    """A small model that is wholly on one device, on a machine without GPUs."""
    weight = tensor("weight", (512, 512), device, storage=1)
    if device.kind == "meta":
        weight = replace(weight, bytes=0, storage_bytes=0, note="1048576 bytes once it is loaded")
    modules = (ModuleFacts("", "Net", -1, 0), ModuleFacts("layer", "Linear", 0, 1, (weight,)))
    return Snapshot(modules, memory=tuple(each for each in split_model().memory if each.device == CPU), virtual_gpus=virtual)


def busy(bare):
    bare.update("panel", "status", {"kind": "busy", "text": "tracing … forward of decoder.head"})
    expect(bare.page.get_by_role("button", name="Cancel")).to_be_visible()


def queued(bare):
    bare.answer("trace", {"state": "queued"})
    bare.page.get_by_role("button", name="Trace batch").click()
    expect(bare.page.locator(".dw-status")).to_have_text("queued: waiting for the running cell")


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
    expect(bare.page.get_by_role("treegrid")).to_contain_text("no row matches")


def with_menu(bare):
    bare.page.get_by_label("Export").click()
    expect(bare.page.get_by_role("button", name="Save figure as SVG")).to_be_visible()


def compared(bare):
    bare.update("panel", "compared", compared_content(one_step(), CLEAN))
    opened("Findings")(bare)
    expect(bare.page.locator(".dw-compared")).to_be_visible()


def applied(bare):
    bare.update("panel", "applied", {"works": "now", "cells": [], **applied_content(MENDS)})
    compared(bare)
    expect(bare.page.get_by_role("button", name="Undo")).to_be_visible()


def questioned(bare):
    bare.answer("apply", {"cells": [], "files": ["train.py"]})
    bare.page.get_by_role("button", name="Apply and trace again").click()
    expect(bare.page.get_by_role("button", name="Do not write")).to_be_visible()


def proposed(bare):
    bare.update("panel", "proposed", proposed_content(layout(GPU0, GPU0, GPU1), tabulate_snapshot(split_model())))
    opened("Devices")(bare)


def printed(bare):
    bare.update("panel", "printed", "step 1\nloss 0.5\n")
    expect(bare.page.locator(".dw-printed")).to_be_visible()


def unfolded(bare):
    bare.page.get_by_role("button", name="unfold").click()
    expect(bare.page.get_by_role("button", name="fold 12")).to_be_visible()


def way_back():
    """One step of a stack that is cut over 4 GPUs, with the gradients that come back."""
    move = one_step().moves[0]
    events = tuple(ModuleEvent(f"h.{n}", "Block", (), (), 1, 0.1, number=10 * n + 5, stopped=10 * n + 14) for n in range(16))
    cuts = [(cut, DeviceId("cuda", cut - 1), DeviceId("cuda", cut)) for cut in (1, 2, 3)]
    there = [replace(move, module="", number=40 * cut + 4, source=one, target=other) for cut, one, other in cuts]
    back = [
        replace(move, module=None, phase="backward", number=300 - cut, source=other, target=one)
        for cut, one, other in reversed(cuts)
    ]
    return Trace(modules=events, moves=(*there, *back), checked=("wrong-device",))


STATES = {
    "devices-and-back": (stack(16, lambda block: DeviceId("cuda", block // 4)), way_back(), opened("Devices")),
    "folded": (stack(12), None, lambda bare: None),
    "unfolded": (stack(12), None, unfolded),
    "mendable": (split_model(), mendable(), opened("Findings")),
    "questioned": (split_model(), mendable(), questioned),
    "applied": (split_model(), CLEAN, applied),
    "compared": (split_model(), CLEAN, compared),
    "hops": (split_model(), one_step(), opened("Trace")),
    "curves": (split_model(), one_step(), opened("Memory")),
    "proposed": (split_model(), one_step(), proposed),
    "watched": (split_model(), one_step(), opened("Watch")),
    "devices": (stack(16, lambda block: DeviceId("cuda", block // 2)), one_step(), opened("Devices")),
    "out-of-memory": (split_model(), FULL, opened("Findings")),
    "out-of-memory-curves": (split_model(), FULL, opened("Memory")),
    "printed": (split_model(), one_step(), printed),
    "no-gpu": (on_one(CPU), None, lambda bare: None),
    "no-gpu-traced": (on_one(CPU), CLEAN, opened("Memory")),
    "meta": (on_one(DeviceId("meta")), None, lambda bare: bare.page.locator("[data-path='layer']").click()),
    "no-batch": (split_model(), None, opened("Trace")),
    "tracing": (split_model(), None, busy),
    "queued": (split_model(), None, queued),
    "refused": (split_model(), None, refused),
    "failed": (split_model(), FAILED, opened("Findings")),
    "clean": (split_model(), CLEAN, opened("Findings")),
    "one-copy": (split_model(), one_step(), opened("Devices")),
    "parallel": (split_model(), data_parallel(4), opened("Devices")),
    "nothing-traced": (split_model(), Trace(), opened("Memory")),
    "deleted": (split_model(), one_step(), deleted),
    "restarted": (split_model(), one_step(), restarted),
    "detail": (split_model(), one_step(), detailed),
    "no-row": (split_model(), one_step(), filtered),
    "menu": (split_model(), one_step(), with_menu),
    "ten-thousand": (large(10_000), None, lambda bare: None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STATES)
def test_screenshots_of_every_state(browser, name):
    snapshot, trace, bring = STATES[name]
    run = watched() if name == "watched" else None
    bare = BarePage(browser, snapshot, trace, run=run, plotly=True, viewport={"width": 1000, "height": 700})
    bring(bare)
    ARTIFACTS.mkdir(exist_ok=True)
    for scheme in ("light", "dark"):
        bare.page.emulate_media(color_scheme=scheme)
        for width in (700, 910, 1280, 1600):
            bare.page.set_viewport_size({"width": width, "height": 700})
            if "PICTURES" in os.environ:
                bare.page.wait_for_timeout(200)  # figures are drawn again for the new width
                bare.page.screenshot(path=ARTIFACTS / f"state-{name}-{scheme}-{width}.png", full_page=True)
            assert bare.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width
        assert violations(bare.page) == []
    bare.close()


def test_an_error_in_the_console_fails_its_test(browser):
    watched = Watched(browser)
    watched.page.evaluate("() => console.error('broken')")
    with pytest.raises(AssertionError, match="in the console: \\['broken'\\]"):
        watched.close()
