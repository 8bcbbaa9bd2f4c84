"""ping-pong: data that crosses between two devices again and again."""

import dataclasses

import pytest

from tests.rules.builders import CPU, GPU0, GPU1, GPU2, chain, crossing, findings, is_silent, site

KIND = "ping-pong"
LOOP = site("x = layer(x.to(layer.weight.device))", 14)


def test_layers_dealt_out_in_turn_are_one_finding(golden):
    (found,) = findings(crossings=chain(GPU0, GPU1, GPU0, GPU1, site=LOOP))
    golden(f"{KIND}.txt", found)


def test_the_line_that_crosses_most_often_is_named():
    first, *others = chain(GPU0, CPU, GPU0, CPU, site=LOOP)
    (found,) = findings(crossings=(dataclasses.replace(first, site=site("x = x.cpu()", 9)), *others))
    assert found.fault == LOOP


def test_the_same_loop_in_two_steps_is_one_finding():
    again = [
        dataclasses.replace(each, number=each.number + 9, step=1, chain=tuple(n + 9 for n in each.chain))
        for each in chain(GPU0, GPU1, GPU0, GPU1, site=LOOP)
    ]
    assert len(findings(crossings=(*chain(GPU0, GPU1, GPU0, GPU1, site=LOOP), *again))) == 1


@pytest.mark.parametrize(
    "crossings",
    [
        pytest.param(chain(GPU0, CPU, GPU0), id="one excursion there and back"),
        pytest.param(chain(GPU0, GPU1, GPU2, GPU0), id="three stages of a pipeline"),
        pytest.param(chain(GPU0, GPU1, GPU0, GPU1, phase="backward"), id="backward mirrors forward"),
        pytest.param(chain(GPU0, GPU1, GPU0, GPU1, meant="the weights do not fit"), id="allowed"),
        pytest.param(chain(GPU0, GPU1, GPU0, GPU1, chain=()), id="three pieces of data that cross once each"),
        pytest.param(tuple(dataclasses.replace(each, step=each.number) for each in chain(GPU0, GPU1, GPU0, GPU1)), id="steps"),
    ],
)
def test_lawful_traffic_stays_silent(crossings):
    assert is_silent(KIND, crossings=crossings)


def test_after_the_fix_one_crossing_between_the_halves_is_silent():
    assert is_silent(KIND, crossings=(crossing(0, GPU0, GPU1, computed=True),))
