"""needless-hop: detours, round trips and constants copied anew, and nothing else."""

import dataclasses

import pytest

from devwidget.records.trace import Held
from tests.rules.builders import CPU, GPU0, GPU1, crossing, findings, is_silent, operand, site

KIND = "needless-hop"
AWAY = crossing(1, GPU0, CPU, site=site("parked = h.cpu()", 11))
SCALE = Held("block", "scale", "attribute", "Block", assigned=site("self.scale = torch.ones(16)", 5, "__init__"))

PLACED = site("losses = torch.empty(2, 2)", 4)
LOSSES = operand("losses", CPU, birth=PLACED, birth_call="torch.empty(2, 2)", birth_op="empty", birth_direct=True)
WRITE = crossing(1, GPU0, CPU, into=LOSSES, trains=True, site=site("losses[i, j] = loss(x[i], y[j])", 7))


def every_call(held, **more):
    return crossing(1, CPU, GPU0, held=held, site=site("x * self.scale.to(x.device)", 12), **more)


def test_a_detour_through_the_host_is_one_finding(golden):
    (found,) = findings(crossings=(AWAY, crossing(2, CPU, GPU1, direct_from=1)))
    golden(f"{KIND}.txt", found)


def test_the_fix_of_a_round_trip_is_to_stay(golden):
    (found,) = findings(crossings=(AWAY, crossing(2, CPU, GPU0, direct_from=1)))
    golden(f"{KIND}-round-trip.txt", found)


def test_an_attribute_that_is_copied_at_every_call_becomes_a_buffer(golden):
    (found,) = findings(crossings=(every_call(SCALE),))
    golden(f"{KIND}-attribute.txt", found)


def test_a_global_that_is_copied_at_every_call_is_moved_once():
    (found,) = findings(crossings=(every_call(Held(None, "SCALE", "global")),))
    assert (found.fixes[0].summary, found.fixes[0].code) == ("move it once", "")


@pytest.mark.parametrize(
    "before",
    [
        dataclasses.replace(AWAY, phase="build", step=-1),  # the loop moved the input before the step
        dataclasses.replace(AWAY, phase="other", step=2),  # or before a later step
        dataclasses.replace(AWAY, meant="the host has the room"),
    ],
)
def test_hops_of_two_steps_and_hops_that_are_allowed_stay_silent(before):
    assert is_silent(KIND, crossings=(before, crossing(2, CPU, GPU1, direct_from=1)))


@pytest.mark.parametrize("more", [{"phase": "build"}, {"phase": "other"}, {"meant": "it changes at every call"}])
def test_an_attribute_that_moves_outside_the_step_or_is_allowed_stays_silent(more):
    assert is_silent(KIND, crossings=(every_call(SCALE, **more),))


def test_weights_that_were_saved_on_the_host_may_be_written_back():
    weight = operand("weight", GPU0, held=Held("block", "weight", "parameter", "Block"))
    assert is_silent(KIND, crossings=(AWAY, crossing(2, CPU, GPU0, direct_from=1, into=weight)))


def test_an_operation_on_the_host_with_moves_there_and_back_stays_silent():
    there = dataclasses.replace(AWAY, computed=True)
    assert is_silent(KIND, crossings=(there, crossing(2, CPU, GPU0, chain=(1,), computed=True)))


def test_a_tensor_on_the_host_that_is_filled_from_a_gpu_and_trained_through_is_made_there(golden):
    (found,) = findings(crossings=(WRITE, dataclasses.replace(WRITE, number=2)))
    golden(f"{KIND}-filled.txt", found)


@pytest.mark.parametrize(
    "more",
    [
        {"trains": False},  # a result
        {"into": dataclasses.replace(LOSSES, held=SCALE)},
        {"into": dataclasses.replace(LOSSES, birth_call="torch.empty(2, 2, device='cpu')")},
    ],
)
def test_results_and_tensors_that_are_on_the_host_on_purpose_may_be_filled_from_a_gpu(more):
    write = dataclasses.replace(WRITE, **more)
    assert is_silent(KIND, crossings=(write, dataclasses.replace(write, number=2)))


def test_a_line_that_writes_once_in_each_step_stays_silent():
    assert is_silent(KIND, crossings=(WRITE, dataclasses.replace(WRITE, number=2, step=1)))


def test_after_the_fix_the_direct_copy_is_silent():
    assert is_silent(KIND, crossings=(crossing(1, GPU0, GPU1, computed=True),))
