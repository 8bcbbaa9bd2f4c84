"""The two palettes: readable on both pages, told apart by everybody, and red for what is wrong alone."""

import colorsys
import itertools
import math

import pytest

from devwidget.records.device import DeviceId
from devwidget.report.style.palette import CATEGORY_HUES, CPU_HUE, DEVICE_HUES, INK, WRONG, device_hue, fade, schemes_of

PAGES = ("#ffffff", "#111111")
# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
PROTAN = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
DEUTAN = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
SHOWN = [*DEVICE_HUES, CPU_HUE, *(hue for name, hue in CATEGORY_HUES.items() if name not in ("cache", "free"))]


def linear(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def seen(colour, sight):
    """As somebody sees it, with equal steps where steps look about equal."""
    rows = (sum(a * b for a, b in zip(row, linear(colour), strict=True)) for row in sight)
    return [min(1, max(0, part)) ** (1 / 2.2) for part in rows]


def contrast(one, other):
    bright, dim = sorted((0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(one), linear(other))), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_each_hue_is_seen_on_its_page(scheme):
    assert [hue for hue in SHOWN if contrast(schemes_of(hue)[scheme], PAGES[scheme]) < 3] == []
    assert all(contrast(schemes_of(hue)[scheme], PAGES[scheme]) > 4.5 for hue in (INK, WRONG))


@pytest.mark.parametrize("sight", [PROTAN, DEUTAN], ids=["protan", "deutan"])
@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_the_cpu_and_the_first_four_gpus_are_told_apart_by_people_who_are_colour_blind(scheme, sight):
    hues = [seen(schemes_of(hue)[scheme], sight) for hue in (CPU_HUE, *DEVICE_HUES[:4])]
    assert min(math.dist(*pair) for pair in itertools.combinations(hues, 2)) > 0.14


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_red_is_for_what_is_wrong(scheme):
    def is_red(colour):
        hue, _, saturation = colorsys.rgb_to_hls(*linear(colour))
        return saturation > 0.5 and (hue < 0.06 or hue > 0.96)

    assert is_red(schemes_of(WRONG)[scheme])
    assert not any(is_red(schemes_of(hue)[scheme]) for hue in (*SHOWN, INK))


def test_a_faded_hue_is_one_for_each_page():
    assert fade(device_hue(DeviceId("cuda", 0)), 0.3) == "light-dark(rgba(47,98,220,0.3), rgba(106,151,252,0.3))"
