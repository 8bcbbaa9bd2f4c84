"""Many ranks as one record: equal ones once, the others named."""

from __future__ import annotations

import dataclasses

from devwidget.extras.ranks.records.cluster import NOWHERE
from devwidget.extras.ranks.records.merging import Heard, merge, split_cluster
from devwidget.extras.ranks.records.rank import RankModel, RankModule
from devwidget.records.loading.json_io import dumps, loads
from devwidget.records.runs import format_runs, numbers_in, runs_of
from tests.extras.ranks.records.made_up import NOW, cluster, faulty, model, report, reports

"""Bytes of 256 ranks on their way to a page."""


def test_ranks_that_hold_the_same_share_one_placement():
    merged = cluster(reports((("dp", 2), ("tp", 2)), layers=2))
    assert [format_runs(each.ranks) for each in merged.placements] == ["ranks 0-3"]
    assert [rank.coordinates for rank in merged.ranks] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_uneven_shards_are_placements_of_their_own():
    merged = cluster(reports((("dp", 4),), layers=1, rows=5))
    assert [format_runs(each.ranks) for each in merged.placements] == ["ranks 0-1", "rank 2", "rank 3"]
    sizes = [sum(t.local_bytes for t in merged.holding(at, 3)) for at in range(3)]
    assert sizes == [2 * 20 * 4, 1 * 20 * 4, 0]


def test_modules_of_one_stage_are_nowhere_on_the_others():
    first = model(1, 8)
    second = RankModel((RankModule("", "Decoder"), RankModule("head", "Linear")), first.holdings, (0, 1))
    merged = cluster([report(0, 2, first), report(1, 2, second)])
    head = [module.path for module in merged.modules].index("head")
    assert [placement.held[head] for placement in merged.placements] == [NOWHERE, 1]
    assert merged.holding(0, head) is None


def test_of_a_rank_of_the_job_that_nobody_heard_of_nothing_is_known():
    merged = merge([Heard(1, "answered", report(1, 3, model(1, 8)))])
    assert [rank.state for rank in merged.ranks] == ["unknown", "answered", "unknown"]
    assert merged.ranks[0].note == "nothing of it is here: it runs elsewhere, has not begun to answer, or has ended"


def test_runs_hold_the_numbers_that_they_are_made_of():
    assert runs_of([12, 0, 1, 2, 2]) == ((0, 2), (12, 12))
    assert list(numbers_in(runs_of([12, 0, 1, 2]))) == [0, 1, 2, 12]
    assert format_runs(runs_of([3])) == "rank 3"


def test_a_saved_cluster_whose_ranks_are_missing_is_read_and_they_are_unknown():
    merged = merge([Heard(1, "answered", report(1, 3, model(1, 8)))])
    text = dumps(merged)
    assert '"unknown"' in text
    assert loads(text.replace('"unknown"', '"missing"')) == merged


def test_a_cluster_and_a_report_come_back_from_their_files():
    merged = faulty()
    assert loads(dumps(merged)) == merged
    assert loads(dumps(reports((("dp", 2),), layers=1)[1])) == reports((("dp", 2),), layers=1)[1]
    assert "rank 7" in str(merged)


def test_a_cluster_is_made_again_of_what_its_ranks_have_said():
    for whole in (cluster(reports((("dp", 2), ("tp", 2)), layers=2)), faulty()):
        again = merge(split_cluster(whole), whole.asked)
        assert dataclasses.replace(again, arrivals=whole.arrivals) == whole


def test_two_jobs_that_were_saved_apart_are_one():
    said = reports((("dp", 4),), layers=1, rows=8)
    saved = [loads(dumps(merge(Heard(each.rank, "answered", each) for each in half))) for half in (said[:2], said[2:])]
    heard = {each.rank: each for each in (*split_cluster(saved[0]), *split_cluster(saved[1])) if each.state != "unknown"}
    together = merge(heard.values())
    assert [rank.state for rank in together.ranks] == ["answered"] * 4
    assert [format_runs(each.ranks) for each in together.placements] == ["ranks 0-3"]


def test_a_rerun_of_the_same_name_is_another_job():
    """What the ranks of a run have agreed on tells it from the one before, of which a rank has left its last word."""
    old, new = (dataclasses.replace(report(at, 2, model(1, 8), taken=NOW + at), job="a", run=f"run {at}") for at in range(2))
    merged = merge([Heard(0, "terminated", old, listens=False), Heard(1, "answered", new)])
    assert ([rank.state for rank in merged.ranks], merged.older) == (["unknown", "answered"], ((0, 0),))
