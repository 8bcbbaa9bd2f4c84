"""The two palettes: readable on both pages, and red for what is wrong alone."""

import colorsys

import pytest

from devwidget.records.device import DeviceId
from devwidget.report.style.palette import CATEGORY_HUES, CPU_HUE, DEVICE_HUES, INK, WRONG, device_hue, fade, schemes_of

PAGES = ("#ffffff", "#111111")
SHOWN = [*DEVICE_HUES, CPU_HUE, *(hue for name, hue in CATEGORY_HUES.items() if name not in ("cache", "free"))]


def linear(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one, other):
    bright, dim = sorted((0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(one), linear(other))), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_each_hue_is_seen_on_its_page(scheme):
    assert [hue for hue in SHOWN if contrast(schemes_of(hue)[scheme], PAGES[scheme]) < 3] == []
    assert all(contrast(schemes_of(hue)[scheme], PAGES[scheme]) > 4.5 for hue in (INK, WRONG))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_red_is_for_what_is_wrong(scheme):
    def is_red(colour):
        hue, _, saturation = colorsys.rgb_to_hls(*linear(colour))
        return saturation > 0.5 and (hue < 0.06 or hue > 0.96)

    assert is_red(schemes_of(WRONG)[scheme])
    assert not any(is_red(schemes_of(hue)[scheme]) for hue in (*SHOWN, INK))


def test_a_faded_hue_is_one_for_each_page():
    assert fade(device_hue(DeviceId("cuda", 0)), 0.3) == "light-dark(rgba(47,98,220,0.3), rgba(106,151,252,0.3))"
