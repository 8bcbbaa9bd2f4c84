"""needless-hop: detours and round trips within one step, and nothing else."""

import dataclasses

from devwidget.records.device import DeviceId
from devwidget.records.trace import Crossing, Trace
from devwidget.rules import needless_hop

CPU, FIRST, SECOND = DeviceId("cpu", None), DeviceId("cuda", 0), DeviceId("cuda", 1)


def crossing(number, source, target, **facts):
    return Crossing(number, source, target, 64, (16,), "", "forward", None, 5, **facts)


def findings(*crossings):
    return list(needless_hop.check(Trace(crossings=crossings)))


def test_a_detour_within_one_step_is_reported():
    (found,) = findings(crossing(1, FIRST, CPU), crossing(2, CPU, SECOND, direct_from=1))
    assert found.kind == "needless-hop"


def test_an_input_that_the_loop_moved_before_the_step_is_silent():
    before = dataclasses.replace(crossing(1, CPU, FIRST), phase="build", step=-1)
    assert findings(before, crossing(2, FIRST, SECOND, direct_from=1)) == []


def test_an_input_of_a_later_step_that_the_loop_moved_is_silent():
    before = dataclasses.replace(crossing(1, CPU, FIRST), phase="other", step=2)
    assert findings(before, crossing(2, FIRST, SECOND, direct_from=1)) == []
