"""Findings over ranks: a bad cluster gives one, healthy ways to train give none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from devwidget.extras.ranks.records.cluster import Cluster, Rank
from devwidget.extras.ranks.records.merging import merge
from devwidget.extras.ranks.records.rank import (
    Axis,
    Collective,
    GroupProgress,
    LocalTensor,
    RankMemory,
    RankModel,
    RankModule,
    RankReport,
)
from devwidget.extras.ranks.rules.over_ranks import ClusterRule, judge_cluster
from devwidget.records.device import DeviceId
from devwidget.records.finding import Finding
from tests.extras.ranks.records.made_up import NOW, cluster, held_up, model, report, reports, silent, with_change

MIB = 2**20


def found(judged: Cluster) -> list[Finding]:
    told = judge_cluster(judged)
    assert told.not_checked == ()
    return list(told.findings)


def only(judged: Cluster) -> Finding:
    (finding,) = found(judged)
    return finding


MAYBE_STAGES = "ignore this if these ranks are pipeline stages"


def changed(said: RankReport, **fields: Any) -> RankReport:
    """Another first tensor of the first block."""
    assert said.model is not None
    tensor = replace(said.model.holdings[1][0], **fields)
    holdings = (said.model.holdings[0], (tensor, *said.model.holdings[1][1:]), said.model.holdings[2])
    return replace(said, model=replace(said.model, holdings=holdings))


def copies(count: int = 4, layers: int = 2) -> list[RankReport]:
    """Data parallelism: everybody has everything."""
    whole = model(layers, 64)
    return [report(number, count, whole) for number in range(count)]


def _pipeline() -> list[RankReport]:
    first = model(1, 64)
    second = RankModel((RankModule("", "Decoder"), RankModule("blocks.1", "Block")), first.holdings, (0, 1))
    return [report(number, 4, first if number < 2 else second) for number in range(4)]


def _visible_alone() -> list[RankReport]:
    """Each rank sees one card and calls it cuda:0."""
    device = DeviceId("cuda", 0)
    return [replace(each, device=device, memory=(RankMemory(device, MIB, MIB, card=f"GPU-{each.rank}"),)) for each in copies()]


def _asked_between_steps() -> list[RankReport]:
    """Ranks that are asked one after the other are steps apart, and so are their collectives."""
    said = copies()
    return [
        replace(each, step=100 + 3 * at, groups=(GroupProgress("0", 10 * (100 + 3 * at), 10 * (100 + 3 * at), 0, 4),))
        for at, each in enumerate(said)
    ]


@pytest.mark.parametrize("said", [
    copies(), reports((("dp", 4),), rows=64), reports((("dp", 2), ("tp", 2)), rows=64),
    reports((("replicate", 2), ("dp", 2)), rows=64), _pipeline(), _visible_alone(), _asked_between_steps(),
    reports((("dp", 4),), layers=1, rows=6),
])  # fmt: skip
def test_healthy_ways_to_train_are_silent(said: list[RankReport]):
    assert found(cluster(said)) == []


def test_ranks_without_a_parameter_are_named():
    finding = only(cluster(reports((("dp", 8),), layers=1, rows=1)[:8]))
    assert (finding.kind, finding.headline) == ("empty-ranks", "ranks 4-7 of 8 hold no parameter")
    assert finding.notes == ("the longest sharded first dimension has 4 rows",)


def test_shares_that_differ_by_a_tenth_and_a_mebibyte_are_told():
    finding = only(cluster(reports((("dp", 32),), layers=12)))
    assert finding.kind == "uneven-shards"
    assert finding.notes == ("largest difference: `blocks.0.down.weight` with 32 rows against 8",)


@pytest.mark.parametrize(("fields", "headline"), [
    ({"dtype": "bfloat16"}, "`blocks.0.up.weight` differs in dtype: bfloat16 on rank 2, float32 on ranks 0-1, 3"),
    ({"requires_grad": False}, "`blocks.0.up.weight` differs in requires_grad: False on rank 2, True on ranks 0-1, 3"),
    ({"device": "cpu"}, "`blocks.0.up.weight` differs in device: cpu on rank 2, its own device on ranks 0-1, 3"),
    ({"shape": (3, 3), "local_shape": (3, 3)},
     "`blocks.0.up.weight` differs in shape: [3, 3] on rank 2, [256, 64] on ranks 0-1, 3"),
])  # fmt: skip
def test_a_rank_that_differs_from_the_others_is_named(fields: dict[str, Any], headline: str):
    finding = only(cluster(with_change(copies(), 2, lambda each: changed(each, **fields))))
    assert (finding.kind, finding.severity, finding.headline) == ("ranks-disagree", "warning", headline)
    assert finding.notes == ("also `blocks.1.up.weight`", MAYBE_STAGES)


def test_copies_that_differ_are_an_error_where_the_mesh_says_that_they_are_copies():
    said = [replace(each, axes=(Axis("dp", 4),), coordinates=(each.rank,)) for each in copies()]
    finding = only(cluster(with_change(said, 2, lambda each: changed(each, dtype="bfloat16"))))
    assert (finding.severity, finding.notes) == ("error", ("also `blocks.1.up.weight`",))


def test_copies_that_differ_are_an_error_where_a_wrapper_has_made_them():
    def wrapped(said: RankReport) -> RankReport:
        assert said.model is not None
        first = replace(said.model.modules[0], wrapper="DistributedDataParallel")
        return replace(said, model=replace(said.model, modules=(first, *said.model.modules[1:])))

    said = [wrapped(each) for each in copies()]
    assert only(cluster(with_change(said, 2, lambda each: changed(each, dtype="bfloat16")))).severity == "error"


def test_a_buffer_that_one_rank_lacks_is_named():
    def with_buffer(said: RankReport) -> RankReport:
        assert said.model is not None
        buffer = LocalTensor("mask", "buffer", (4,), (4,), "bool", 4, 4)
        holdings = ((buffer,), *said.model.holdings[1:])
        return replace(said, model=replace(said.model, holdings=holdings))

    finding = only(cluster([with_buffer(each) if each.rank else each for each in copies()]))
    assert finding.headline == "`mask` is missing on rank 0"


def test_a_rank_with_fewer_modules_is_named():
    finding = only(cluster(with_change(copies(layers=2), 1, lambda each: replace(each, model=model(1, 64)))))
    assert finding.headline == "rank 1 lacks module `blocks.1` and 2 more, which ranks 0, 2-3 have"
    assert finding.severity == "warning"
    assert finding.notes == (MAYBE_STAGES,)


def _stage(number: int, count: int, **more: Any) -> RankReport:
    """A stage that numbers its layers from 0; the first and the last have something of their own."""
    layer = changed(report(0, 1, model(1, 64 + 64 * number)), requires_grad=number > 0).model
    assert layer is not None
    own = {0: "words", count - 1: "head"}.get(number)
    modules = (*layer.modules, RankModule(own, "Linear")) if own else layer.modules
    return report(number, count, RankModel(modules, layer.holdings, (*layer.held, 1) if own else layer.held), **more)


@pytest.mark.parametrize("known", ["by their stages", "by the mesh", "by their modules"])
def test_stages_that_number_their_own_layers_are_silent(known: str):
    said = [_stage(number, 4, checksums=(("blocks.0.up.weight", str(number)),)) for number in range(4)]
    if known == "by their stages":
        said = [replace(each, stages=(each.rank,)) for each in said]
    if known == "by the mesh":
        said = [replace(each, axes=(Axis("pp", 4),), coordinates=(each.rank,)) for each in said]
    if known == "by their modules":
        said[2] = replace(said[1], rank=2)
    assert found(cluster(said)) == []


def test_copies_of_one_stage_are_still_compared():
    said = [replace(_stage(number // 2, 2), rank=number, world_size=4, stages=(number // 2,)) for number in range(4)]
    said[3] = changed(said[3], dtype="bfloat16")
    assert only(cluster(said)).headline == "`blocks.0.up.weight` differs in dtype: float32 on rank 2, bfloat16 on rank 3"


def test_several_ranks_on_one_card_are_told():
    device = DeviceId("cuda", 0)
    said = [replace(each, device=device, memory=(RankMemory(device, MIB, MIB, card="GPU-7"),)) for each in copies()]
    finding = only(cluster(said))
    assert finding.headline == "ranks 0-3 keep their models on the same GPU, `cuda:0` of node0"
    assert finding.fixes[0].code == 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))'


def test_memory_on_the_card_of_another_rank_is_told():
    def own(number: int) -> RankMemory:
        return RankMemory(DeviceId("cuda", number), 9 * MIB, 9 * MIB, card=f"GPU-{number}")

    said = [replace(each, memory=(own(each.rank), *([own(0)] if each.rank else []))) for each in copies()]
    assert only(cluster(said)).headline == f"ranks 1-3 use up to {9 * MIB:,} bytes on `cuda:0`, the GPU of rank 0"


def _in_group(said: RankReport, begun: int, **more: Any) -> RankReport:
    return replace(said, groups=(GroupProgress("dp", begun, begun - ("collective" in more), 0, 4),), **more)


def _waits(kind: str = "all_reduce", number: int = 961, size: int = 4096) -> Collective:
    return Collective(kind, number, "dp", (0, 1, 2, 3), size, seconds=31.0)


def _hanging(said: list[RankReport]) -> Cluster:
    hung = {f"r{each.rank}": Rank("hung", each) for each in said if each.collective is not None}
    return cluster(said, **{name: each for name, each in hung.items() if not each.said.collective.finished})


def test_who_has_not_begun_the_collective_of_the_others_is_named_beside_whom_nothing_is_known_of():
    said = [_in_group(each, 961, collective=_waits()) for each in copies()]
    said[2] = _in_group(said[2], 960, collective=None)
    hung = {f"r{number}": Rank("hung", said[number]) for number in (0, 1)}
    finding = only(cluster(said[:3], **hung, r3=silent(3, "unknown")))
    assert finding.headline == "ranks 0-1 wait in `all_reduce` number 961 of `dp`, which rank 2 has not reached"
    assert "they have waited for 31 s" in finding.notes
    assert "rank 2: answered, at train.py:41: loss.backward()" in finding.notes
    assert "it is unknown whether rank 3 began it" in finding.notes
    assert len(finding.fixes) == 2


def busy(group: str, begun: int) -> Rank:
    """Of which torch alone tells how far it has come."""
    return silent(3, "busy", taken=NOW, groups=(GroupProgress(group, begun, 960),))


WAIT = "ranks 0-2 wait in `all_reduce` number 961 of `dp`"


@pytest.mark.parametrize(("heard", "severity", "told"), [
    (silent(3, "dead", "gone"), "error", ", but the process of rank 3 has ended"),
    (silent(3, "stopped"), "error", ", but rank 3 is stopped by a signal"),
    (silent(3, "unknown"), "warning", "; it is unknown whether rank 3 reached it"),
    (busy("dp", 960), "error", ", which rank 3 has not reached"),
    (busy("", 7), "warning", "; it is unknown whether rank 3 reached it"),
])  # fmt: skip
def test_what_keeps_others_waiting_is_said_as_far_as_it_is_known(heard: Rank, severity: str, told: str):
    """A rank that began it and died in it, or was stopped in it, has begun it."""
    said = [_in_group(each, 961, collective=_waits()) for each in copies()]
    hung = {f"r{each.rank}": Rank("hung", each) for each in said}
    finding = only(cluster(said, **hung | {"r3": heard}))
    assert (finding.severity, finding.headline) == (severity, WAIT + told)


def test_a_busy_rank_that_torch_itself_saw_begin_is_not_accused():
    said = [_in_group(each, 961, collective=_waits()) for each in copies()]
    hung = {f"r{each.rank}": Rank("hung", each) for each in said}
    began = busy("dp", 961)
    assert found(cluster(said, **hung | {"r3": began})) == []


def test_of_a_mesh_only_the_rank_is_named_that_waits_for_nobody():
    finding = only(merge(held_up(), asked=NOW))
    assert finding.headline.endswith("of `dp`, which rank 37 has not reached")
    assert any("also wait, in other collectives" in note for note in finding.notes)


def test_ranks_that_wait_for_each_other_are_all_told():
    said = []
    for each, (own, other) in zip(copies(2), (("dp", "tp"), ("tp", "dp")), strict=True):
        groups = GroupProgress(own, 961, 960, 0, 2), GroupProgress(other, 960, 960, 0, 2)
        waits = Collective("all_reduce", 961, own, (0, 1), 4096, seconds=31.0)
        said.append(replace(each, groups=groups, collective=waits))
    headlines = [finding.headline for finding in found(_hanging(said))]
    assert [headline.partition(" which ")[2] for headline in headlines] == ["rank 1 has not reached", "rank 0 has not reached"]


def test_ranks_in_different_collectives_at_one_place_are_told():
    kinds = {2: "broadcast"}
    said = [_in_group(each, 961, collective=_waits(kinds.get(each.rank, "all_reduce"))) for each in copies()]
    finding = only(_hanging(said))
    assert finding.headline == (
        "number 961 of group `dp` is `broadcast` of 4,096 bytes on rank 2, `all_reduce` of 4,096 bytes on ranks 0-1, 3"
    )


def test_one_step_less_is_told_where_nobody_moves():
    said = [_in_group(each, 961, collective=_waits(), step=120 - (each.rank == 1)) for each in copies()]
    assert only(_hanging(said)).headline == "the ranks have taken different numbers of steps: rank 1 119, ranks 0, 2-3 120"


def test_steps_that_were_left_out_are_told_while_ranks_move():
    said = [_in_group(each, 960 + (each.rank == 3), collective=None, step=120 - 4 * (each.rank == 3)) for each in copies()]
    assert only(cluster(said)).kind == "step-disagrees"


def test_ranks_of_a_mesh_that_only_meet_in_pairs_are_not_held_against_what_all_did_before():
    def moving(said: RankReport) -> RankReport:
        further = 2 * said.rank
        pair = GroupProgress("shard", 30 + 3 * further, 30 + 3 * further, said.rank // 2 * 2, 2)
        return replace(said, groups=(GroupProgress("default_pg", 96, 96, 0, 4), pair), step=10 + further)

    assert found(cluster([moving(each) for each in copies()])) == []


def test_plain_parameters_beside_those_that_fsdp_cuts_are_told():
    def wrapped(said: RankReport, root: bool) -> RankReport:
        assert said.model is not None
        modules = tuple(
            replace(m, wrapper="FSDP2" if m.path.startswith("blocks.0") or (root and not m.path) else "")
            for m in said.model.modules
        )
        norm = LocalTensor("scale", "parameter", (64,), (64,), "float32", 256, 256, requires_grad=True)
        holdings = ((norm,), *said.model.holdings[1:])
        return replace(said, model=RankModel(modules, holdings, said.model.held))

    said = reports((("dp", 4),), layers=1, rows=64)
    finding = only(cluster([wrapped(each, root=False) for each in said]))
    assert finding.headline == "`scale` is a plain tensor on ranks 0-3, in a model sharded by `fully_shard`"
    assert found(cluster([wrapped(each, root=True) for each in said])) == []


def test_modules_that_fsdp_left_whole_are_told():
    said = [replace(each, unsharded=("blocks.0",)) for each in copies()]
    assert only(cluster(said)).headline == "`blocks.0` is unsharded on ranks 0-3 while neither forward nor backward runs"


def test_copies_that_drifted_apart_are_told_and_not_those_of_another_step():
    def summed(step: int) -> list[RankReport]:
        sums = {1: "00000001"}
        return [
            replace(each, checksums=(("head.weight", sums.get(each.rank, "0")),), step=120 if each.rank != 1 else step)
            for each in copies()
        ]

    assert only(cluster(summed(120))).headline == "`head.weight` on rank 1 differs from the others after step 120"
    assert found(cluster(summed(121))) == []


@pytest.mark.parametrize(("asked", "ranks"), [((0, 1), "ranks 0-1"), ((0, 1, 2, 3), "ranks 0-3")])
def test_no_rank_is_accused_where_as_many_have_the_other_value(asked: tuple[int, ...], ranks: str):
    sums = [(("head.weight", str(each.rank % 2)),) for each in copies()]
    said = [replace(each, checksums=sums[each.rank], step=7 if each.rank in asked else each.rank) for each in copies()]
    assert only(cluster(said)).headline == f"`head.weight` is not the same on {ranks} after step 7"


def test_a_rule_that_crashes_is_told_and_the_others_go_on():
    def crash(judged: Cluster) -> Any:
        raise KeyError("x")

    judged = judge_cluster(cluster(copies()), [ClusterRule("broken", crash), ClusterRule("fine", lambda judged: iter(()))])
    assert judged.checked == ("fine",)
    assert judged.not_checked == ("broken: the rule itself failed with KeyError: 'x'",)
