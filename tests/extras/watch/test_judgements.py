"""What rows say is true of the rows: creeping memory, slow steps, and silence over all that only comes and goes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from devwidget.extras.watch.judgements import (
    ELEMENTS,
    WAITED,
    Growth,
    GrowthJudge,
    PaceJudge,
    Slowdown,
    Window,
)

KIB, MIB, MILLISECOND = 1024, 2**20, 1000


def look_at(rows: list[dict[str, int]], look: Callable[[Window], Any]) -> list[Any]:
    """What is found at the end of each segment."""
    window, found = Window(), []
    for number, row in enumerate(rows):
        if window.add_row({"first": number, **row}):
            found.append(look(window))
    return [each for each in found if each is not None]


def growth(figures: list[int]) -> list[Growth]:
    return look_at([{"bytes": each} for each in figures], GrowthJudge("bytes").look)


Figure = Callable[[int], int]


def _none(_: int) -> int:
    return 0


def slowdowns(steps: list[dict[str, int]], waited: Figure = _none, elements: Figure = _none) -> list[Slowdown]:
    rows = [{WAITED: waited(number), ELEMENTS: elements(number), **each} for number, each in enumerate(steps)]
    return look_at(rows, PaceJudge().look)


def test_bytes_that_are_kept_at_each_step_are_a_growth_of_so_many_from_the_first_on():
    assert growth([64 * KIB + 3 * KIB * step for step in range(128)]) == [Growth(0, 3 * KIB)]


def test_growth_that_begins_later_is_said_to_begin_there():
    first, *later = growth([64 * KIB + 512 * max(0, step - 160) for step in range(400)])
    assert 160 <= first.since < 192
    assert first.bytes_per_step == pytest.approx(512, rel=0.1)
    assert {each.since for each in later} == {first.since}


def test_growth_under_lengths_that_come_and_go_is_seen():
    lengths = random.Random(0)
    assert growth([lengths.choice([0, 8, 64]) * KIB + 2 * KIB * step for step in range(200)])


@pytest.mark.parametrize(
    "figures",
    [
        [64 * KIB] * 1000,
        [64 * KIB + 8 * KIB * (step >= 500) for step in range(1000)],
        [64 * KIB + 100 * KIB * (step % 50 == 0) for step in range(1000)],
        [64 * KIB + 4 * KIB * min(step, 100) for step in range(1000)],
        [64 * KIB + 4 * KIB * (step % 100) for step in range(1000)],
        [1000 * KIB - step * KIB for step in range(900)],
    ],
    ids=["even", "one step up", "evaluations", "a cache that fills", "emptied each epoch", "less and less"],
)
def test_memory_that_does_not_creep_is_none(figures):
    assert growth(figures) == []


def test_chance_makes_no_growth():
    chance = random.Random(1)
    assert growth([chance.randrange(1000) * KIB for _ in range(20_000)]) == []


def test_a_loader_that_slows_is_the_part_that_takes_the_time():
    fast, slow = {"data": 100, "forward": 900}, {"data": 4 * MILLISECOND, "forward": 900}
    first = slowdowns([fast] * 64 + [slow] * 64)[0]
    assert first == Slowdown(64, 1000, 4900, "data", 100, 4000)


def test_steps_that_are_slow_in_all_parts_alike_blame_none():
    fast = {"data": 500, "forward": 500, "backward": 500}
    slow = {part: 4 * each for part, each in fast.items()}
    assert slowdowns([fast] * 32 + [slow] * 32)[0].part == ""


def test_batches_of_workers_that_come_several_at_once_are_slow_together():
    steps = [{"data": 50, "forward": 900}] * 64
    steps += [{"data": 12 * MILLISECOND * (step % 4 == 0), "forward": 900} for step in range(128)]
    assert slowdowns(steps)[0] == Slowdown(64, 950, 3900, "data", 50, 3000)


def test_evaluation_is_no_slow_step():
    steps = [{"forward": 1000, "evaluation": 50_000 * (step > 100)} for step in range(300)]
    assert slowdowns(steps) == []


@pytest.mark.parametrize("slow", [lambda step: step % 10 == 0, lambda step: 100 <= step < 120, lambda step: step < 40])
def test_slow_steps_now_and_then_and_a_slow_start_are_none(slow):
    assert slowdowns([{"forward": 9000 if slow(step) else 1000} for step in range(400)]) == []


def test_steps_are_not_slow_for_the_time_in_which_others_had_the_processor():
    steps = [{"forward": 1000}] * 64 + [{"forward": 9000}] * 64
    assert slowdowns(steps, lambda step: 7500 * (step >= 64)) == []
    assert slowdowns(steps, lambda step: 700 * (step < 64))[0].since == 64


def test_steps_are_slow_for_more_than_longer_inputs_explain():
    def longer(step: int) -> int:
        return 100 + 100 * (step >= 64)

    assert slowdowns([{"forward": 1000 + 3000 * (step >= 64)} for step in range(128)], elements=longer) == []
    assert slowdowns([{"forward": 1000 + 9000 * (step >= 64)} for step in range(128)], elements=longer)


def test_less_than_a_millisecond_is_no_slow_step():
    assert slowdowns([{"forward": 200}] * 64 + [{"forward": 900}] * 64) == []
