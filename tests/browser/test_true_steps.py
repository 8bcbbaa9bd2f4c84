"""Real steps on virtual GPUs, as the page shows them: what it says of hops, ends, boxes and bytes is what happened."""

import pytest
import torch
from playwright.sync_api import expect
from torch import nn

import devwidget
from devwidget.report.style.units import format_bytes
from tests.browser.esm import BarePage


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

    def show(model, trace):
        pages.append(BarePage(browser, devwidget.snapshot(model), trace))
        return pages[-1]

    yield show
    for page in pages:
        page.close()


@pytest.fixture
def gpus():
    with devwidget.simulate(2, memory="64MiB"):
        torch.manual_seed(0)
        yield


def batch(size=16):
    return torch.randn(size, 64, device="cuda:0")


def tab(bare, name):
    bare.page.get_by_role("tab", name=name).click()
    return bare.page.get_by_role("tabpanel", name=name)


def test_a_step_that_a_device_error_ends_shows_its_finding_with_the_cure_and_nothing_of_the_simulator(shown, gpus):
    model = Masked().to("cuda:0")
    bare = shown(model, devwidget.trace(model, batch(), heal=False))
    expect(bare.page.locator("[data-path='mask']")).to_contain_text("finding")
    assert bare.page.locator(".dw-hop, .dw-row-hop").count() == 0
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


def test_amounts_are_written_as_in_python_and_a_device_has_one_colour_everywhere(shown, gpus):
    model = Split()
    bare = shown(model, devwidget.trace(model, batch()))
    expect(bare.page.locator("[data-path='lower'] .dw-bytes")).to_have_text(format_bytes(64 * 65 * 4))
    chip = bare.page.locator("[data-path='upper'] .dw-chip").evaluate(
        "(chip) => getComputedStyle(chip).getPropertyValue('--dw-hue')"
    )
    block = tab(bare, "Devices").locator("[data-mark=block][data-module=upper] > rect[stroke]")
    assert chip == block.get_attribute("stroke")


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
