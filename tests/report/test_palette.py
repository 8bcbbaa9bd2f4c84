"""The two palettes: readable on both pages, told apart by everybody, and red for what is wrong alone."""

import colorsys
import itertools

import pytest

from devwidget.records.device import DeviceId
from devwidget.records.memory import ROLES
from devwidget.report.style.palette import CATEGORY_HUES, CPU_HUE, DEVICE_HUES, INK, WRONG, device_hue, fade, schemes_of
from devwidget.views.memory import BAR_PARTS

PAGES = ("#ffffff", "#111111")
# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
SIGHTS = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
SOLID = [name for name in CATEGORY_HUES if name not in ("cache", "free")]


def linear(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def seen(colour, sight):
    return [min(1, max(0, sum(a * b for a, b in zip(row, linear(colour), strict=True)))) for row in SIGHTS[sight]]


def oklab(colour, sight="normal"):
    """Ottosson 2020, times 100."""
    r, g, b = seen(colour, sight)
    cones = (
        0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b,
        0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b,
        0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b,
    )
    x, y, z = (cone ** (1 / 3) for cone in cones)
    return (
        100 * (0.2104542553 * x + 0.7936177850 * y - 0.0040720468 * z),
        100 * (1.9779984951 * x - 2.4285922050 * y + 0.4505937099 * z),
        100 * (0.0259040371 * x + 0.7827717662 * y - 0.8086757660 * z),
    )


def distance(one, other, sight):
    return sum((a - b) ** 2 for a, b in zip(oklab(one, sight), oklab(other, sight), strict=True)) ** 0.5


def contrast(one, other):
    bright, dim = sorted((0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(one), linear(other))), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_each_hue_is_seen_on_its_page(scheme):
    hues = [*DEVICE_HUES, CPU_HUE, *(CATEGORY_HUES[name] for name in SOLID)]
    assert [hue for hue in hues if contrast(schemes_of(hue)[scheme], PAGES[scheme]) < 3] == []
    assert all(contrast(schemes_of(hue)[scheme], PAGES[scheme]) > 4.5 for hue in (INK, WRONG))


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_the_cpu_and_the_first_four_gpus_are_told_apart_by_everybody(scheme, sight):
    hues = [schemes_of(hue)[scheme] for hue in (CPU_HUE, *DEVICE_HUES[:4])]
    assert min(distance(*pair, sight) for pair in itertools.combinations(hues, 2)) > 7
    every = [schemes_of(hue)[scheme] for hue in (CPU_HUE, *DEVICE_HUES)]
    assert min(distance(*pair, sight) for pair in itertools.combinations(every, 2)) > 4.5


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("order", [ROLES, BAR_PARTS], ids=["curves", "bars"])
def test_neighbours_in_a_stack_differ_in_lightness(order, scheme, sight):
    shown = [schemes_of(CATEGORY_HUES[name])[scheme] for name in order if name in SOLID]
    steps = [abs(oklab(a, sight)[0] - oklab(b, sight)[0]) for a, b in itertools.pairwise(shown) if a != b]
    assert min(steps) > 6


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_no_device_looks_like_a_part_of_memory(scheme):
    pairs = itertools.product((*DEVICE_HUES, CPU_HUE), (CATEGORY_HUES[name] for name in SOLID))
    assert min(distance(schemes_of(a)[scheme], schemes_of(b)[scheme], "normal") for a, b in pairs) > 4


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_red_is_for_what_is_wrong(scheme):
    def is_red(colour):
        hue, _, saturation = colorsys.rgb_to_hls(*linear(colour))
        return saturation > 0.5 and (hue < 0.06 or hue > 0.96)

    assert is_red(schemes_of(WRONG)[scheme])
    assert not any(is_red(schemes_of(hue)[scheme]) for hue in (*DEVICE_HUES, CPU_HUE, INK, *(CATEGORY_HUES[n] for n in SOLID)))


def test_a_faded_hue_is_one_for_each_page():
    assert fade(device_hue(DeviceId("cuda", 0)), 0.3) == "light-dark(rgba(47,98,220,0.3), rgba(106,151,252,0.3))"
