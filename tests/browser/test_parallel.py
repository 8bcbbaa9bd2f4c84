"""The drawing of a DataParallel call as a browser paints it: replicas, parts of the batch, the gather point, the numbers."""

import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from devwidget.records.device import DeviceId
from devwidget.records.trace import Trace
from devwidget.report.page.html import panel_page
from devwidget.views.parallel import draw_flow, parallel_calls
from tests.browser.esm import BarePage
from tests.views.builders import data_parallel, one_step, split_model
from tests.views.test_repeats import stack


@pytest.fixture
def drawn(opened):
    def show(trace, width=1100):
        page = opened(panel_page(split_model(), trace), width)
        page.get_by_role("tab", name="Parallel").click()
        page.locator(".dw-flow .js-fill").first.wait_for(state="attached")
        return page

    return show


def words(page):
    """The texts of the drawing, each line by itself."""
    notes = page.locator(".dw-flow .annotation-text")
    return [list(note.locator("tspan.line").all_text_contents() or [note.text_content()]) for note in notes.all()]


def areas(page):
    """Corners of every area in the order in which they were drawn: ribbons first, then boxes."""
    paths = page.locator(".dw-flow .js-fill").evaluate_all("(all) => all.map((path) => path.getAttribute('d'))")
    return [[tuple(map(float, point.split(","))) for point in re.findall(r"-?[\d.]+,-?[\d.]+", path)] for path in paths]


@pytest.mark.parametrize("gpus", [2, 8])
@pytest.mark.parametrize("width", [700, 1600])
def test_replicas_shares_and_the_gather_point_are_drawn_with_their_numbers(drawn, gpus, width):
    page = drawn(data_parallel(gpus), width)
    shown = words(page)
    parts = [32, 31] if gpus == 2 else [8] * 7 + [7]
    replicas = [lines for lines in shown if lines[0].startswith("cuda:") and "sample" in lines[0]]
    assert [lines[0].split()[:2] for lines in replicas] == [[f"cuda:{n}", str(part)] for n, part in enumerate(parts)]
    assert replicas[1][2] == "peak 6.00 MiB" if gpus == 2 else "peak 7.00 MiB"
    assert [lines for lines in shown if lines[0] == "gathered"] == [["gathered", "cuda:0", "2.40 MiB", "then the loss"]]
    assert [lines[0] for lines in shown][-gpus:] == [str(part) for part in parts]
    assert page.locator(".dw-flow .shapelayer path").count() == 2 * (gpus - 1)


@pytest.mark.parametrize("gpus", [2, 8])
def test_ribbons_are_painted_to_one_scale(drawn, gpus):
    trace = data_parallel(gpus)
    (call,) = parallel_calls(trace)
    painted = areas(drawn(trace))
    ribbons = draw_flow(call).ribbons
    assert len(painted) == len(ribbons) + 4 + gpus
    thick = {(each.step, each.number): abs(area[0][1] - area[-1][1]) for each, area in zip(ribbons, painted, strict=False)}
    assert thick["replicate", 1] / thick["reduce", 1] == pytest.approx(3 / 2, rel=0.02)
    assert thick["replicate", 1] / thick["gather", 0] == pytest.approx(3 * 1024**2 / call.replicas[0].output_bytes, rel=0.1)
    assert min(thick.values()) >= 1.5


def test_no_text_leaves_its_box_at_seven_hundred_pixels(drawn):
    page = drawn(data_parallel(8), 700)
    plot = page.locator(".dw-flow .dw-plot").bounding_box()
    for note in page.locator(".dw-flow .annotation-text").all():
        box = note.bounding_box()
        assert plot["x"] <= box["x"]
        assert box["x"] + box["width"] <= plot["x"] + plot["width"]
        assert box["width"] < 0.34 * plot["width"]


def test_a_click_on_a_replica_leads_to_its_line_and_row(drawn):
    page = drawn(data_parallel(2))
    page.locator(".dw-flow .annotation-text").filter(has_text="31 samples").first.scroll_into_view_if_needed()
    at = page.locator(".dw-flow .annotation-text").filter(has_text="31 samples").first.bounding_box()
    page.mouse.click(at["x"] - 20, at["y"] + at["height"] / 2)
    picked = page.locator(".dw-picked")
    expect(picked).to_contain_text("replica 1 on cuda:1")
    expect(picked).to_contain_text("train.py:12")
    expect(picked.locator("code").last).to_have_text("out = decoder(batch)")
    picked.get_by_role("button").click()
    expect(page.get_by_role("tab", name="Modules")).to_have_attribute("aria-selected", "true")


def test_the_table_has_a_row_for_each_gpu_idle_ones_too(drawn):
    page = drawn(data_parallel(4, samples=3))
    expect(page.locator(".dw-replica")).to_have_count(3)
    expect(page.locator(".dw-idle")).to_contain_text("the batch did not reach it")
    cells = page.locator(".dw-replica").nth(1).locator("td").all_text_contents()
    assert cells == ["cuda:1", "GPU 1", "1", "4 KiB", "3.00 MiB", "39 KiB", "2.00 MiB", "6.00 MiB"]
    expect(page.locator(".dw-advice[data-about='batch']")).to_contain_text("A batch of 4 reaches all.")


def test_the_table_has_the_times_of_real_gpus(drawn):
    page = drawn(replace(data_parallel(2), virtual_gpus=0))
    expect(page.locator(".dw-replica").first.locator("td").last).to_have_text("4 ms")


def test_a_wrapper_tells_its_prefix_before_and_after_a_trace(drawn):
    page = drawn(data_parallel(2))
    spread = page.locator(".dw-spread[data-kind='DataParallel']")
    expect(spread).to_contain_text("The names of its parameters and buffers (3) begin with decoder.module.")
    expect(spread.locator("pre")).to_have_text("torch.save(model.decoder.module.state_dict(), path)")
    spread.get_by_role("button", name="decoder", exact=True).click()
    expect(page.locator("[data-path='decoder']")).to_have_attribute("aria-selected", "true")


def test_advice_has_code_to_copy(drawn):
    page = drawn(data_parallel(2))
    advice = page.locator(".dw-advice[data-about='loss']")
    expect(advice).to_contain_text("2 numbers are gathered on cuda:0 instead of 2.40 MiB")
    expect(advice.locator("pre")).to_contain_text("return self.loss_fn(self.model(x), target)")
    expect(advice.get_by_role("button", name="Copy the code")).to_be_visible()


def test_a_split_model_is_drawn_on_its_devices(browser):
    bare = BarePage(browser, split_model(), one_step(), plotly=True)
    bare.page.get_by_role("tab", name="Parallel").click()
    drawn = bare.page.locator(".dw-map")
    expect(drawn.locator(".annotation-text", has_text="decoder.head")).to_be_visible()
    expect(drawn.locator(".annotation-text", has_text="cuda:1")).to_be_visible()
    expect(bare.page.locator(".dw-mapped")).to_contain_text("Forward: 5 hops")
    bare.close()


@pytest.mark.parametrize("devices", [2, 8])
@pytest.mark.parametrize("width", [560, 1600])
def test_names_on_the_map_stay_in_their_boxes(browser, devices, width):
    spread = stack(16, lambda block: DeviceId("cuda", block * devices // 16))
    bare = BarePage(browser, spread, Trace(modules=one_step().modules), plotly=True, viewport={"width": width, "height": 900})
    bare.page.get_by_role("tab", name="Parallel").click()
    names = bare.page.locator(".dw-map .annotation-text").filter(has_text="–")
    expect(names).to_have_count(devices)
    room = bare.page.locator(".dw-map .dw-plot").bounding_box()["width"] * 0.74 / devices
    assert max(name.bounding_box()["width"] for name in names.all()) <= room + 1
    bare.close()
