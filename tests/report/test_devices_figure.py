"""The picture of devices as SVG: where everything lies, and that no ribbon crosses a block."""

import html
import itertools
import re
import xml.etree.ElementTree as ET
from urllib.parse import unquote

import pytest

from devwidget.records.device import DeviceId
from devwidget.report.figures.devices import WIDTHS, draw_devices
from devwidget.report.figures.ribbons import Ribbon, RibbonBox, choose_lanes
from devwidget.report.page.html import panel_html
from devwidget.report.text.device_words import taken_words
from devwidget.views.devices import DeviceColumn, make_picture
from devwidget.views.placement import tabulate_snapshot
from tests.views.builders import GPU0, data_parallel, one_step, split_model
from tests.views.test_repeats import stack

SVG = "{http://www.w3.org/2000/svg}"
MODELS = {
    "split": (split_model(), one_step()),
    "two replicas": (split_model(), data_parallel(2)),
    "eight replicas": (split_model(), data_parallel(8)),
    "eight GPUs": (stack(16, lambda block: DeviceId("cuda", block // 2)), one_step()),
}
pictures = pytest.mark.parametrize("name", MODELS)
widths = pytest.mark.parametrize("width", WIDTHS)


def drawn(name, width):
    snapshot, trace = MODELS[name]
    return ET.fromstring(draw_devices(make_picture(snapshot, tabulate_snapshot(snapshot), trace), width))


def marks(svg, kind):
    return [mark for mark in svg.iter(f"{SVG}g") if mark.get("data-mark") == kind]


def frame(block):
    """Left, top, right and bottom of a block's own rectangle."""
    box = next(each for each in block.findall(f"{SVG}rect") if each.get("stroke") is None)
    left, top = float(box.get("x")), float(box.get("y"))
    return left, top, left + float(box.get("width")), top + 26


def segments(way):
    """The straight parts of a ribbon."""
    path = way.findall(f"{SVG}path")[-1].get("d")
    points = [tuple(map(float, pair)) for pair in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path)]
    return list(itertools.pairwise(points))


@pictures
@widths
def test_every_part_says_what_it_is_and_lies_on_the_page(name, width):
    svg = drawn(name, width)
    assert float(svg.get("width")) <= width + 1
    for mark in (*marks(svg, "column"), *marks(svg, "way"), *marks(svg, "block")):
        assert mark.find(f"{SVG}title").text
    for left, top, right, bottom in map(frame, marks(svg, "block")):
        assert 0 <= left < right <= float(svg.get("width"))
        assert 0 <= top < bottom <= float(svg.get("height"))


@pictures
@widths
def test_no_ribbon_crosses_a_block(name, width):
    svg = drawn(name, width)
    blocks = [frame(block) for block in marks(svg, "block")]
    for way in marks(svg, "way"):
        for (x1, y1), (x2, y2) in segments(way)[1:-1]:  # the first leaves its block, the last enters one
            for left, top, right, bottom in blocks:
                apart = max(x1, x2) <= left or min(x1, x2) >= right or max(y1, y2) <= top or min(y1, y2) >= bottom
                assert apart, (way.find(f"{SVG}title").text, (x1, y1, x2, y2), (left, top, right, bottom))


def test_ribbons_share_a_lane_only_where_they_do_not_meet_or_are_one_tree():
    one, two, three = RibbonBox(0, 0, 0, 100), RibbonBox(1, 1, 200, 100), RibbonBox(1, 2, 400, 100)
    apart = choose_lanes([Ribbon(one, two), Ribbon(one, three)])
    tree = choose_lanes([Ribbon(one, two, bundle="scatter"), Ribbon(one, three, bundle="scatter")])
    assert (apart.gutters, apart.channels, apart.leaves) == ((0, 1), (0, 1), (0, 1))
    assert (tree.gutters, tree.channels, tree.leaves) == ((0, 0), (0, 0), (0, 0))


def test_more_bytes_are_thicker_and_what_is_wrong_is_dotted():
    ways = {way.get("data-kind"): way for way in marks(drawn("split", 860), "way")}
    thick = {kind: float(way.findall(f"{SVG}path")[1].get("stroke-width")) for kind, way in ways.items()}
    assert thick["healed"] > thick["copy"]
    assert ways["healed"].findall(f"{SVG}path")[1].get("stroke-dasharray")
    assert not ways["copy"].findall(f"{SVG}path")[1].get("stroke-dasharray")


def saved_images(snapshot, trace):
    """The images of the output that is saved, as SVG, with the words that stand for each."""
    found = re.findall(r'<img src="data:image/svg\+xml,([^"]*)" alt="([^"]*)">', panel_html(snapshot, trace))
    return [(ET.fromstring(unquote(html.unescape(drawn))), html.unescape(words)) for drawn, words in found]


def texts(svg):
    return [text.text for text in svg.iter(f"{SVG}text")]


def test_what_is_saved_shows_the_devices_and_the_findings():
    ((devices, columns),) = saved_images(split_model(), one_step())
    assert "decoder.head" in texts(devices)
    assert columns.startswith("cpu: ")
    assert "<code>addmm</code> got tensors on cuda:0 and cuda:1" in panel_html(split_model(), one_step())


def test_a_device_that_had_no_room_never_seems_to_hold_what_it_refused():
    column = DeviceColumn(GPU0, 128 << 20, (("parameters", 86 << 20),), refused=134 << 20, is_peak=True)
    assert taken_words(column, ()) == ["134 MiB did not fit", "> 128 MiB"]
