"""What differs without being a tensor: optimizers, modes, versions; slow ranks; and why copies have drifted apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from devwidget.extras.ranks.records.rank import PastCollective, RankReport, Setting, StepSettings
from devwidget.extras.ranks.rules.over_ranks import judge_cluster
from devwidget.records.finding import Finding
from tests.extras.ranks.records.made_up import NOW, cluster, reports


def steps(lr: str = "0.01", mode: str = "train", first: int = 1, last: int = 9) -> tuple[StepSettings, ...]:
    settings = Setting("optimizer", "optimizer", "AdamW"), Setting("optimizer", "optimizer.lr", lr), Setting("mode", "", mode)
    return (StepSettings(first, last, settings),)


def job(**of_rank_2: Any) -> list[RankReport]:
    """Four copies that train alike, but for what rank 2 has of its own."""
    said = [replace(each, steps=steps()) for each in reports((("replicate", 4),), layers=1, rows=64)]
    return [replace(each, **of_rank_2) if each.rank == 2 else each for each in said]


def found(said: list[RankReport]) -> list[Finding]:
    told = judge_cluster(cluster(said))
    assert told.not_checked == ()
    return list(told.findings)


def test_ranks_that_train_alike_are_silent():
    assert found(job()) == []


def test_another_learning_rate_is_named_with_its_step():
    (finding,) = found(job(steps=steps(lr="0.02")))
    assert (finding.kind, finding.severity) == ("settings-differ", "error")
    assert finding.headline == "`optimizer.lr` differs: 0.02 on rank 2, 0.01 on ranks 0-1, 3"
    assert finding.notes[0] == "seen at the end of step 9"


def test_a_schedule_that_one_rank_is_further_in_is_no_difference():
    """They are asked one after the other, and the newest step that all know is compared."""
    schedule = (*steps("0.01", last=9), *steps("0.009", first=10, last=10))
    assert found(job(steps=schedule)) == []


def test_a_rank_in_evaluation_is_named():
    (finding,) = found(job(steps=steps(mode="eval")))
    assert finding.headline == "the model is in different modes: eval on rank 2, train on ranks 0-1, 3"


def test_another_policy_of_fsdp_on_one_rank_is_named_with_the_modules_that_have_it():
    def walked(dtype: str) -> tuple[StepSettings, ...]:
        names = ("mp_policy", "mp_policy of blocks.0")
        policies = (Setting("precision", name, f"param_dtype={dtype}, reduce_dtype=float32") for name in names)
        return (*steps(), StepSettings(4, 4, (Setting("mode", "", "train"), *policies)))

    said = [replace(each, steps=walked("float32" if each.rank == 2 else "bfloat16")) for each in job()]
    (finding,) = found(said)
    assert (finding.severity, finding.headline) == (
        "warning",
        "`mp_policy` differs: param_dtype=float32, reduce_dtype=float32 on rank 2, "
        "param_dtype=bfloat16, reduce_dtype=float32 on ranks 0-1, 3",
    )
    assert finding.notes == ("seen at the end of step 4", "the same ranks differ in `mp_policy of blocks.0`")


@pytest.mark.parametrize(
    ("kind", "severity", "absent"),
    [("version", "warning", "none"), ("precision", "warning", "none"), ("environment", "info", "not set")],
)
def test_what_is_installed_and_set_there_is_told_as_grave_as_it_is(kind: Any, severity: str, absent: str):
    common = Setting("version", "torch", "2")
    said = [replace(each, settings=(common, Setting(kind, "X", "1"))) for each in job()]
    said[1] = replace(said[1], settings=(common,))
    said[2] = replace(said[2], settings=(common, Setting(kind, "X", "2")))
    (finding,) = found(said)
    assert (finding.headline, finding.severity) == (f"`X` differs: {absent} on rank 1, 2 on rank 2, 1 on ranks 0, 3", severity)


def test_seeds_may_differ():
    said = [replace(each, settings=(Setting("random", "torch.initial_seed()", str(each.rank)),)) for each in job()]
    assert found(said) == []


def summed(value: str, step: int = 64) -> dict[str, Any]:
    return {"checksums": (("blocks.0.up.bias", value),), "checksums_step": step}


def test_drift_is_named_with_its_cause():
    said = [replace(each, **summed("a")) for each in job(steps=steps(lr="0.02"))]
    said[2] = replace(said[2], **summed("b"))
    drifted, settings = found(said)
    assert (drifted.kind, settings.kind) == ("drifted-copies", "settings-differ")
    assert drifted.headline == "`blocks.0.up.bias` on rank 2 differs from the others after step 64"
    assert drifted.notes == ("the same ranks differ in `optimizer.lr`: 0.02 on rank 2, 0.01 on ranks 0-1, 3",)


def test_copies_are_compared_after_one_step_alone():
    said = [replace(each, **summed("a")) for each in job()]
    said[2] = replace(said[2], **summed("b", 128))
    assert found(said) == []


def came(late: dict[int, float], count: int = 24, every: float = 0.1) -> list[RankReport]:
    """Ranks that begin a collective each step, some of them later than the others."""
    said = []
    for each in job():
        last = tuple(
            PastCollective(
                "all_reduce", n, "dp", 0, 4, 64, NOW + n * every + late.get(each.rank, 0.0) + 1e-4 * ((n + each.rank) % 4)
            )
            for n in range(count)
        )
        said.append(replace(each, last=last, machine=f"boot{each.rank // 2} pid"))
    return said


def ended_at(said: list[RankReport], ahead: dict[str, float]) -> list[RankReport]:
    """Ends of steps, by clocks of which some are ahead."""
    return [
        replace(
            each,
            ends=tuple((n, NOW + n + ahead.get(each.machine, 0.0)) for n in range(1, 9)),
            last=tuple(replace(one, begun=one.begun + ahead.get(each.machine, 0.0)) for one in each.last),
        )
        for each in said
    ]


def test_a_rank_for_which_all_others_wait_is_named():
    (finding,) = found(ended_at(came({2: 0.04}), {}))
    assert (finding.kind, finding.severity) == ("slow-rank", "warning")
    assert finding.headline == "the other ranks wait for rank 2 for 38 % of the time"


def test_ranks_that_come_together_are_silent():
    assert found(ended_at(came({}), {})) == []


def test_two_ranks_that_are_late_in_turn_are_no_slow_rank():
    said = ended_at(came({2: 0.04}), {})
    other = ended_at(came({1: 0.04}), {})
    mixed = [
        replace(a, last=tuple((b if n % 2 else a).last[n] for n in range(len(a.last))))
        for a, b in zip(said, other, strict=True)
    ]
    assert found(mixed) == []


def test_a_clock_that_is_ahead_makes_nobody_late():
    assert found(ended_at(came({}), {"boot1 pid": 30.0})) == []
    (finding,) = found(ended_at(came({2: 0.04}), {"boot1 pid": 30.0}))
    assert finding.headline == "the other ranks wait for rank 2 for 38 % of the time"
