"""The tree table in a bare page."""

import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from devwidget.records.snapshot import ModuleFacts, Snapshot
from devwidget.report.page.tree_columns import tree_table
from devwidget.views.placement import tabulate_snapshot
from tests.browser.esm import BarePage, large
from tests.views.builders import GPU0, one_step, split_model, tensor
from tests.views.test_repeats import stack

ALL = [
    "",
    "encoder",
    "encoder.embed",
    "encoder.attention",
    "encoder.attention.mask",
    "decoder",
    "decoder.head",
    "decoder.tied",
]


@pytest.fixture
def bare(browser):
    opened = BarePage(browser, split_model(), one_step())
    yield opened
    opened.close()


def row(bare, path):
    return bare.page.locator(f"[role=row][data-path='{path}']")


def test_every_module_has_a_row_with_its_devices(bare):
    assert bare.paths() == ALL
    expect(row(bare, "decoder.head").locator(".dw-device .dw-chip")).to_have_text(["cuda:1"])
    expect(row(bare, "decoder").locator(".dw-device .dw-chip")).to_have_text(["cuda:0", "cuda:1"])
    expect(row(bare, "decoder.head")).to_have_attribute("data-severity", "error")
    expect(row(bare, "decoder")).to_contain_text("1 below")
    expect(row(bare, "decoder").locator(".dw-flow .dw-chip")).to_have_text(["cuda:0", "cuda:1"])
    expect(row(bare, "encoder").locator(".dw-flow .dw-chip")).to_have_count(0)  # where data stays


def test_rows_in_which_a_tensor_hops_are_tinted_and_their_drawer_lists_the_hops(bare):
    expect(row(bare, "decoder")).to_have_class(re.compile("dw-row-hop"))
    expect(row(bare, "encoder.embed")).not_to_have_class(re.compile("dw-row-hop"))
    row(bare, "decoder").click()
    hop = bare.page.locator(".dw-detail .dw-hop-row")
    expect(hop).to_have_count(1)
    expect(hop.locator("td")).to_have_text(
        ["cuda:0 → cuda:1", "4", "64 KiB", "decoder train.py:40", ".to() or copy forward", "f32[8, 512]"]
    )


def test_device_and_dtype_are_in_sight_at_every_width(bare):
    bare.page.get_by_role("tab", name="Modules").click()
    for width in (1600, 700, 560):
        bare.page.set_viewport_size({"width": width, "height": 700})
        for kind in ("device", "dtype", "bytes", "notes"):
            expect(row(bare, "decoder.head").locator(f".dw-{kind}")).to_be_visible()
        tops = bare.page.locator("[data-path='decoder'] > :visible").evaluate_all(
            "(cells) => cells.map((cell) => cell.offsetTop)"
        )
        assert max(tops) < 24, "a row is one line high"
        end = bare.page.locator(".dw-grid").bounding_box()
        for note in row(bare, "encoder.attention").locator(".dw-notes > *").all()[:2]:
            box = note.bounding_box()
            assert box["x"] + box["width"] <= end["x"] + end["width"]


def test_collapsing_hides_what_is_below_and_keeps_its_count(bare):
    row(bare, "encoder").locator(".dw-twist").click()
    assert bare.paths() == ["", "encoder", "decoder", "decoder.head", "decoder.tied"]
    expect(row(bare, "encoder")).to_have_attribute("aria-expanded", "false")
    expect(row(bare, "encoder")).to_contain_text("1 hop")


def test_arrows_letters_enter_and_escape_work_without_a_mouse(bare):
    page = bare.page
    assert page.locator(".dw-body [aria-selected='true']").count() == 0  # before somebody comes
    page.get_by_role("treegrid").focus()
    expect(row(bare, "")).to_have_attribute("aria-selected", "true")
    for key in ("Home", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    assert "encoder.embed" not in bare.paths()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(row(bare, "encoder.embed")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.locator(".dw-detail")).to_contain_text("f32[1000, 512]")
    page.keyboard.press("Escape")
    expect(page.locator(".dw-detail")).to_be_hidden()
    page.keyboard.type("he")
    expect(row(bare, "decoder.head")).to_have_attribute("aria-selected", "true")


HITS = {
    "device:cuda:1": ["", "decoder", "decoder.head"],
    "kind:attribute": ["", "encoder", "encoder.attention", "encoder.attention.mask"],
    "has:finding": ["", "encoder", "encoder.attention", "encoder.attention.mask", "decoder", "decoder.head"],
    "has:hop": ["", "encoder", "encoder.attention", "decoder"],
    "has:grad": ["", "encoder", "encoder.embed"],
    "class:embedding device:cuda": ["", "encoder", "encoder.embed", "decoder", "decoder.tied"],
    "head deco": ["", "decoder", "decoder.head"],
    "tied encoder": [],
}


def test_the_filter_keeps_hits_and_their_ancestors(bare):
    for words, hits in HITS.items():
        bare.page.get_by_label("filter rows").fill(words)
        assert bare.paths() == hits, words


def test_sorting_orders_siblings(bare):
    bare.page.get_by_role("columnheader", name="bytes").get_by_role("button").click()
    assert bare.paths()[:3] == ["", "encoder", "encoder.attention"]
    bare.page.get_by_role("columnheader", name="module").get_by_role("button").click()
    assert bare.paths() == ["", "decoder", "decoder.head", "decoder.tied", *ALL[1:2], *ALL[3:5], ALL[2]]


def test_open_rows_stay_open_when_the_model_changes(bare):
    row(bare, "encoder").locator(".dw-twist").click()
    grown = split_model()
    grown = replace(
        grown, modules=(*grown.modules, ModuleFacts("extra", "Linear", 0, 1, (tensor("weight", device=GPU0, storage=9),)))
    )
    bare.update("panel", "table", tree_table(tabulate_snapshot(grown)))
    assert bare.paths() == ["", "encoder", "decoder", "decoder.head", "decoder.tied", "extra"]


def test_detail_is_asked_for_when_it_did_not_travel(bare):
    bare.update("panel", "table", tree_table(tabulate_snapshot(split_model())))
    bare.answer("select", {"detail": {"path": "p", "class": "C", "defined": None, "facts": [], "tensors": []}})
    row(bare, "decoder.head").click()
    expect(bare.page.locator(".dw-detail")).to_contain_text("no tensors of its own")
    assert bare.sent("select")[0]["row"] == 6


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "'\"&<script> 日本語 🔥"])
def test_names_from_the_model_stay_text(browser, name):
    nasty = Snapshot((ModuleFacts("", name, -1, 0), ModuleFacts("child", name, 0, 1, (tensor(name, storage=1),), note=name)))
    bare = BarePage(browser, nasty)
    bare.page.locator("[data-path=child]").click()
    expect(bare.page.locator(".dw-detail")).to_contain_text(name)
    expect(bare.page.locator(".dw-title")).to_have_text(name)
    assert bare.page.locator(".dw img, .dw script").count() == 0
    bare.close()


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_large_models_are_drawn_with_few_elements(browser, count):
    snapshot = large(count)
    bare = BarePage(browser, snapshot)
    bare.page.get_by_role("button", name="Expand all rows").click()
    assert bare.page.get_by_role("treegrid").get_attribute("aria-rowcount") == str(count + 1)
    assert bare.page.locator(".dw-panel *").count() < 2500
    bare.page.get_by_role("treegrid").focus()
    bare.page.keyboard.press("End")
    assert bare.paths()[-1] == snapshot.modules[-1].path
    bare.close()


def test_rows_in_sight_are_painted_wherever_the_table_scrolls_and_stay_while_they_are(browser):
    bare = BarePage(browser, large(1000))
    bare.page.get_by_role("button", name="Expand all rows").click()
    for top in (0, 50, 400, 20_000, 19_000, 23_500, 100, 100, 0):
        bare.page.evaluate("(top) => { document.querySelector('.dw-grid').scrollTop = top }", top)
        bare.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        shown = bare.page.locator(".dw-body [data-row]").evaluate_all("(rows) => rows.map((row) => Number(row.dataset.row))")
        assert shown == list(range(shown[0], shown[-1] + 1))
        assert shown[0] * 24 <= top
        assert shown[-1] * 24 >= min(top + 400, 999 * 24)
    first = bare.page.locator("[data-row='5']").element_handle()
    bare.page.evaluate("() => { document.querySelector('.dw-grid').scrollTop = 60 }")
    bare.page.wait_for_timeout(200)
    assert first.evaluate("(row) => row.isConnected")
    bare.close()


def test_identical_blocks_are_one_row_with_a_key_to_unfold(browser):
    bare = BarePage(browser, stack(12))
    tops = ["", "h", "h.0", "h.0.up", "h.0.down"]
    assert bare.paths() == tops
    expect(row(bare, "h.0")).to_contain_text("0–11")
    expect(row(bare, "h.0")).to_contain_text("12 × Block, identical")
    row(bare, "h.0").get_by_role("button", name="unfold").click()
    assert len(bare.paths()) == 38
    row(bare, "h.0").get_by_role("button", name="fold 12").click()
    assert bare.paths() == tops
    row(bare, "h.0").locator(".dw-name").click()
    bare.page.keyboard.press("+")
    assert len(bare.paths()) == 38
    bare.page.keyboard.press("+")
    bare.page.get_by_label("filter rows").fill("h.7.up")
    assert bare.paths() == ["", "h", "h.7", "h.7.up"]
    bare.page.evaluate("() => window.models.panel.set('chosen', { path: 'h.9.down' })")
    expect(row(bare, "h.9.down")).to_have_attribute("aria-selected", "true")
    bare.close()


@pytest.mark.parametrize("width", [1600, 1280, 910, 700])
def test_the_detail_of_a_row_that_is_opened_comes_into_sight(browser, width):
    bare = BarePage(browser, stack(40), viewport={"width": width, "height": 700})
    bare.page.get_by_role("button", name="Expand all rows").click()
    bare.page.locator("[data-path='h.3.up']").click()
    detail = bare.page.get_by_role("region", name="row detail")
    expect(detail).to_be_in_viewport(ratio=0.99)
    bare.close()


def test_a_module_with_a_tied_weight_says_so_in_its_row(browser):
    tied = replace(tensor("weight", device=GPU0, storage=1), tied_to="embed.weight")
    modules = (
        ModuleFacts("", "Net", -1, 0),
        ModuleFacts("embed", "Embedding", 0, 1, (tensor("weight", device=GPU0, storage=1),)),
        ModuleFacts("head", "Linear", 0, 1, (tied,)),
    )
    bare = BarePage(browser, Snapshot(modules))
    expect(row(bare, "head").locator(".dw-notes")).to_have_text("tied to embed.weight")
    expect(row(bare, "embed").locator(".dw-notes")).to_have_text("")
    bare.close()
