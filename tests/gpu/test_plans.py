"""Plans beside the card: peaks of real training steps, of generations, and of the models of transformers in small."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests import zoo
from tests.gpu import jobs
from tests.gpu.places import CARD, HAS_CARD, PLAIN, ask

pytestmark = [pytest.mark.fuzz, pytest.mark.timeout(900)]
PARTS = 6


def ask_for_both(run, plan, names):
    """What ran on the card, and what was planned, at once."""
    kind = ask(CARD, jobs.kind_of_card)
    with ThreadPoolExecutor(2) as threads:
        ran, planned = threads.submit(ask, CARD, run, names), threads.submit(ask, PLAIN, plan, names, kind)
    return ran.result(), planned.result()


def off(planned, measured):
    return planned / measured - 1


@pytest.mark.skipif(not HAS_CARD, reason="they need the memory and the speed of a card")
@pytest.mark.parametrize("part", range(PARTS))
def test_steps_take_what_was_planned(part, reports):
    names = [*jobs.JOBS, *jobs.GENERATIONS][part::PARTS]
    ran, planned = ask_for_both(jobs.run_jobs, jobs.plan_jobs, names)
    for name in names:
        figures = {
            what: (ran[name][what], planned[name][what])
            for what in ("allocated", "reserved")
            if planned[name][what] and ran[name][what] > 0
        }
        words = "; ".join(
            f"{what} {real:,}, planned {ours:,} ({off(ours, real):+.2%})" for what, (real, ours) in figures.items()
        )
        reports(f"{name}: {words}", job=name, ran=ran[name], planned=planned[name])
    wrong = {name: off(planned[name]["allocated"], ran[name]["allocated"]) for name in names if ran[name]["allocated"] > 0}
    assert {name: share for name, share in wrong.items() if abs(share) > 0.02} == {}


@pytest.mark.parametrize("part", range(PARTS))
def test_small_models_take_what_was_planned(part, reports):
    names = list(zoo.CORE)[part::PARTS]
    ran, planned = ask_for_both(jobs.measure_models, jobs.plan_models, names)
    pairs = {
        f"{name}, {what}": (planned[name][at], ran[name][at])
        for name in ran
        for at, what in enumerate(("forward", "step"))
        if at < len(planned[name])
    }
    beyond = {name: f"{ours:,} for {real:,}" for name, (ours, real) in pairs.items() if abs(off(ours, real)) > 0.02}
    exact = sum(ours == real for ours, real in pairs.values())
    reports(
        f"part {part + 1} of {PARTS}: {len(pairs)} peaks, {exact} to the byte, {len(beyond)} off by more than 2 %: {beyond}"
    )
    assert beyond == {}
