"""Real steps on virtual GPUs, as the page shows them: what it says of hops, ends, boxes and bytes is what happened."""

import re

import pytest
import torch
from playwright.sync_api import expect
from torch import nn

import devwidget
from devwidget.report.page.content import memory_content
from devwidget.report.style.units import format_bytes
from devwidget.views.timeline import make_timeline
from tests.browser.esm import BarePage
from tests.views.builders import MIB


class Masked(nn.Module):
    """A mask in a plain attribute, which stays on the cpu."""

    def __init__(self):
        super().__init__()
        self.up, self.head = nn.Linear(64, 64), nn.Linear(64, 8)
        self.mask = torch.ones(64)

    def forward(self, x):
        return self.head(self.up(x) * self.mask)


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.lower, self.upper = nn.Linear(64, 64).to("cuda:0"), nn.Linear(64, 8).to("cuda:1")

    def forward(self, x):
        hidden = self.lower(x)
        return self.upper(hidden.to("cuda:1"))


@pytest.fixture
def shown(browser):
    """Opens the page of a model and its trace."""
    pages = []

    def show(model, trace, **options):
        pages.append(BarePage(browser, devwidget.snapshot(model), trace, plotly=True, **options))
        return pages[-1]

    yield show
    for page in pages:
        page.close()


@pytest.fixture
def gpus():
    with devwidget.simulate(2, memory="64MiB"):
        torch.manual_seed(0)
        yield


def loss(out):
    return out.square().mean()


def batch(size=16):
    return torch.randn(size, 64, device="cuda:0")


def tab(bare, name):
    bare.page.get_by_role("tab", name=name).click()
    return bare.page.get_by_role("tabpanel", name=name)


def test_a_fault_that_is_not_healed_is_no_hop_anywhere(shown, gpus):
    model = Masked().to("cuda:0")
    bare = shown(model, devwidget.trace(model, batch(), heal=False))
    expect(bare.page.locator("[data-path='mask']")).to_contain_text("finding")
    assert bare.page.locator(".dw-hop, .dw-row-hop").count() == 0
    expect(tab(bare, "Trace")).to_contain_text("No tensor crossed between devices.")


def test_a_healed_move_is_a_dotted_red_arrow_and_said_to_be_healed(shown, gpus):
    model = Masked().to("cuda:0")
    bare = shown(model, devwidget.trace(model, batch()))
    expect(tab(bare, "Trace").locator(".dw-hop-row")).to_contain_text("healed")
    dotted = bare.page.locator(".dw-timeline .dw-hop-stem:not([stroke-dasharray=none])").last
    red, green, blue = map(int, re.findall(r"\d+", dotted.evaluate("(stem) => getComputedStyle(stem).stroke")))
    assert red > 1.5 * max(green, blue)


def test_a_step_that_a_device_error_ends_shows_its_finding_with_the_cure_and_nothing_of_the_simulator(shown, gpus):
    model = Masked().to("cuda:0")
    bare = shown(model, devwidget.trace(model, batch(), heal=False))
    bare.update("panel", "status", {"kind": "error", "text": "ended by an exception"})
    page = bare.page.get_by_role("tabpanel", name="Findings")
    expect(page).to_be_visible()
    (found,) = page.locator(".dw-finding").all()
    expect(found).to_have_attribute("data-kind", "unregistered-tensor")
    expect(found.locator(".dw-message")).to_contain_text("Expected all tensors to be on the same device")
    fails = found.locator("figure", has_text="fails here").locator("code")
    expect(fails).to_have_text("return self.head(self.up(x) * self.mask)")
    expect(found.locator(".dw-fix code").first).to_contain_text("mask")
    assert "devwidget/simulator" not in found.locator(".dw-traceback").text_content()
    expect(page).not_to_contain_text("Nothing found")


def test_boxes_end_before_the_loss_and_bands_name_the_phases(shown, gpus):
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8)).to("cuda:0")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    target = torch.zeros(16, 8)
    trace = devwidget.trace(model, batch(), loss_fn=nn.functional.mse_loss, target=target, optimizer=optimizer)
    bare = shown(model, trace, viewport={"width": 1600, "height": 900})
    tab(bare, "Trace")
    drawn = bare.page.locator(".dw-timeline")
    names = [drawn.locator(".dw-band-name", has_text=word).first for word in ("forward", "loss", "backward", "optimizer")]
    lefts = [name.bounding_box()["x"] for name in names]
    assert lefts == sorted(lefts)
    bands = {band.phase: band for band in make_timeline(trace).bands}
    (cross,) = make_timeline(trace).crosses
    assert bands["loss"].start <= cross.at < bands["loss"].stop
    assert max(box.stop for box in make_timeline(trace).boxes if not box.is_gradient) <= bands["forward"].stop
    mark = drawn.locator(".dw-fault").first.bounding_box()
    plot = drawn.locator(".dw-lanes").bounding_box()
    assert mark["x"] > plot["x"] + 0.1 * plot["width"]


def test_what_belongs_to_others_is_named_so_in_bars_and_curves(shown, gpus):
    model, other = nn.Linear(64, 8).to("cuda:0"), torch.ones(3 * MIB // 4, device="cuda:0")
    bare = shown(model, devwidget.trace(model, batch(), loss_fn=loss))
    expect(bare.page.locator(".dw-memory .dw-legend")).to_contain_text("tensors outside this model")
    expect(tab(bare, "Memory").locator(".dw-peak")).to_contain_text("other models and tensors 3.00 MiB")
    assert other.numel()


def test_while_a_cell_runs_gradients_are_named_gradients(shown, gpus):
    model = nn.Linear(64, 8).to("cuda:0")
    bare = shown(model, None)
    loss(model(batch())).backward()
    bare.update("panel", "memory", {"drawn": 1})
    running = memory_content(devwidget.snapshot(model).memory, None, before=())
    bare.update("live", "figure", running | {"over": 1})
    expect(bare.page.locator(".dw-memory .dw-legend")).to_contain_text("gradients")


def test_a_gpu_that_the_step_did_not_touch_has_no_peak_of_it(shown, gpus):
    high = torch.ones(8 * MIB, device="cuda:1")
    del high
    model = nn.Linear(64, 8).to("cuda:0")
    bare = shown(model, devwidget.trace(model, batch(), loss_fn=loss))
    expect(bare.page.locator(".dw-memory .dw-plot")).to_be_visible()
    assert devwidget.snapshot(model).memory[1].peak == 32 * MIB
    expect(tab(bare, "Memory").locator(".dw-peak")).to_have_count(1)
    marks = bare.page.evaluate(
        "() => document.querySelector('.dw-memory .dw-plot').data.filter((each) => each.meta === 'peak').map((each) => each.y)"
    )
    assert [["cuda:0" in row for row in rows] for rows in marks] == [[True]]


def test_outputs_and_gathered_outputs_have_their_names(shown, gpus):
    model = nn.DataParallel(nn.Linear(64, 4096).to("cuda:0"), [0, 1])
    bare = shown(model, devwidget.trace(model, batch(64), loss_fn=loss))
    page = tab(bare, "Memory")
    expect(page.locator(".dw-peak").first).to_contain_text("gathered outputs")
    expect(page).not_to_contain_text("other 1")


def test_hooks_of_accelerate_are_named_with_the_module_that_they_serve(shown, gpus):
    accelerate = pytest.importorskip("accelerate")
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8))
    model = accelerate.dispatch_model(model, {"0": 0, "1": 1}, main_device="cuda:0")
    bare = shown(model, devwidget.trace(model, batch()))
    row = tab(bare, "Trace").locator(".dw-hop-row").first
    expect(row).to_contain_text("hook")
    expect(row.get_by_role("button", name="1", exact=True)).to_be_visible()
    devices = tab(bare, "Devices")
    expect(devices).to_contain_text("by hooks of accelerate")
    expect(devices).not_to_contain_text("offload")


def test_hops_of_backward_have_a_line_of_the_model_and_a_way_in_the_picture(shown, gpus):
    model = Split()
    bare = shown(model, devwidget.trace(model, batch(), loss_fn=loss))
    back = tab(bare, "Trace").locator(".dw-hop-row", has_text="backward")
    expect(back.locator("xpath=following-sibling::tr[1]")).to_contain_text('return self.upper(hidden.to("cuda:1"))')
    way = tab(bare, "Devices").locator("[data-mark=way][data-kind=gradient]")
    expect(way).to_have_count(1)
    expect(way.locator("title")).to_contain_text("4 KiB, 1 hop")
    way.focus()
    expect(bare.page.locator(".dw-picked").first).to_contain_text("gradients on their way back")


def test_amounts_are_written_as_in_python_and_a_device_has_one_colour_everywhere(shown, gpus):
    model = Split()
    bare = shown(model, devwidget.trace(model, batch()))
    expect(bare.page.locator("[data-path='lower'] .dw-bytes")).to_have_text(format_bytes(64 * 65 * 4))
    chip = bare.page.locator("[data-path='upper'] .dw-chip").evaluate(
        "(chip) => getComputedStyle(chip).getPropertyValue('--dw-hue')"
    )
    block = tab(bare, "Devices").locator("[data-mark=block][data-module=upper] > rect[stroke]")
    assert chip == block.get_attribute("stroke")


def test_device_dtype_and_the_line_of_a_hop_are_in_sight_at_seven_hundred_pixels(shown, gpus):
    model = Split()
    bare = shown(model, devwidget.trace(model, batch(), loss_fn=loss), viewport={"width": 700, "height": 900})
    row = bare.page.locator("[data-path='lower']")
    for kind in ("device", "dtype", "notes"):
        cell = row.locator(f".dw-{kind}")
        assert cell.evaluate("(cell) => cell.scrollWidth <= cell.clientWidth + 1"), kind
    tab(bare, "Trace")
    for cell in bare.page.locator(".dw-hop-row .dw-place").all():
        box = cell.bounding_box()
        assert box["x"] + box["width"] <= 700
        assert re.search(r"test_true_steps\.py:\d+", cell.text_content())


class Reading(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(64, 8)

    def forward(self, x):
        y = self.up(x)
        return y * y.max().item()


def test_lines_that_wait_are_a_table_below_the_hops(shown, gpus):
    model = Reading().to("cuda:0")
    bare = shown(model, devwidget.trace(model, batch()))
    row = tab(bare, "Trace").locator(".dw-wait-row")
    expect(tab(bare, "Trace").locator(".dw-code-line", has_text="return y * y.max().item()")).to_be_visible()
    expect(row.locator("td").nth(1)).to_have_text("1")
    expect(row).to_contain_text("item forward")
