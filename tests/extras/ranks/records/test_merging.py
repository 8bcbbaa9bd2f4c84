"""Many ranks as one record: what is equal is one object, the others are named."""

from __future__ import annotations

import dataclasses
import json

import pytest

from devwidget.extras.ranks.records.cluster import Rank
from devwidget.extras.ranks.records.columns import lay_out_columns
from devwidget.extras.ranks.records.merging import merge, ranks_of_saved
from devwidget.extras.ranks.records.rank import GroupProgress, RankModel, RankModule
from devwidget.records.errors import UnreadableError
from devwidget.records.loading.json_io import dumps, loads
from devwidget.records.runs import format_runs, runs_of
from tests.extras.ranks.records.made_up import NOW, cluster, faulty, model, report, reports, silent


def test_ranks_that_hold_the_same_share_one_column():
    merged = cluster(reports((("dp", 2), ("tp", 2)), layers=2))
    assert [column.ranks for column in lay_out_columns(merged).each] == [(0, 1, 2, 3)]
    assert [merged.find_coordinates(rank) for rank in merged.ranks] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_uneven_shards_are_columns_of_their_own():
    columns = lay_out_columns(cluster(reports((("dp", 4),), layers=1, rows=5))).each
    assert [column.ranks for column in columns] == [(0, 1), (2,), (3,)]
    sizes = [sum(tensor.local_bytes for tensor in column.held[3]) for column in columns]
    assert sizes == [2 * 20 * 4, 1 * 20 * 4, 0]


def test_modules_of_one_stage_are_nowhere_on_the_others():
    first = model(1, 8)
    second = RankModel((RankModule("", "Decoder"), RankModule("head", "Linear")), first.holdings, (0, 1))
    columns = lay_out_columns(cluster([report(0, 2, first), report(1, 2, second)]))
    head = [module.path for module in columns.modules].index("head")
    assert [column.held[head] for column in columns.each] == [None, first.holdings[1]]


def test_of_a_rank_of_the_job_that_nobody_heard_of_nothing_is_known():
    merged = merge([Rank("answered", report(1, 3, model(1, 8)))])
    assert [rank.state for rank in merged.ranks] == ["unknown", "answered", "unknown"]
    assert merged.ranks[0].note == "no data: it runs elsewhere, has not called devwidget.serve() yet, or has ended"


def test_runs_hold_the_numbers_that_they_are_made_of():
    assert runs_of([12, 0, 1, 2, 2]) == ((0, 2), (12, 12))
    assert runs_of([12, 0, 1, 2]) == ((0, 2), (12, 12))
    assert format_runs(runs_of([3])) == "rank 3"


def test_a_cluster_and_a_report_come_back_from_their_files():
    merged = faulty()
    assert loads(dumps(merged)) == merged
    assert loads(dumps(reports((("dp", 2),), layers=1)[1])) == reports((("dp", 2),), layers=1)[1]
    assert "rank 7" in str(merged)


def test_what_ranks_have_in_common_is_written_once_and_read_as_one_object():
    apart = [dataclasses.replace(report(at, 4, model(2, 8)), settings=()) for at in range(4)]
    text = dumps(cluster(apart))
    assert text.count('"blocks.0.up"') == 1
    assert len({id(rank.said.model) for rank in loads(text).ranks}) == 1


@pytest.mark.parametrize("place", [-1, 7, "0", None])
def test_a_place_that_does_not_exist_is_told_where_it_stands(place: object):
    saved = json.loads(dumps(cluster(reports((("dp", 2),), layers=1))))
    saved["data"]["ranks"][1]["said"]["model"] = {"$": place}
    with pytest.raises(UnreadableError, match=r"ranks\[1\].said.model: expected an index into `shared`"):
        loads(json.dumps(saved))


def test_a_cluster_is_made_again_of_what_its_ranks_have_said():
    for whole in (cluster(reports((("dp", 2), ("tp", 2)), layers=2)), faulty()):
        again = merge(ranks_of_saved(whole), whole.asked)
        assert dataclasses.replace(again, arrivals=whole.arrivals) == whole


def test_two_jobs_that_were_saved_apart_are_one():
    said = reports((("dp", 4),), layers=1, rows=8)
    saved = [loads(dumps(merge(Rank("answered", each) for each in half))) for half in (said[:2], said[2:])]
    together = merge(rank for each in saved for rank in ranks_of_saved(each) if rank.state != "unknown")
    assert [rank.state for rank in together.ranks] == ["answered"] * 4
    assert [column.ranks for column in lay_out_columns(together).each] == [(0, 1, 2, 3)]


def test_a_rerun_of_the_same_name_is_another_job():
    """What the ranks of a run have agreed on tells it from the one before, of which a rank has left its last word."""
    old, new = (dataclasses.replace(report(at, 2, model(1, 8), taken=NOW + at), job="a", run=f"run {at}") for at in range(2))
    merged = merge([Rank("terminated", old), Rank("answered", new)])
    assert ([rank.state for rank in merged.ranks], merged.older) == (["unknown", "answered"], ((0, 0),))


def test_a_rank_of_which_torch_alone_tells_is_of_the_job_of_the_others():
    busy = silent(2, "busy", taken=NOW + 9, groups=(GroupProgress("dp", 7, 6),))
    merged = merge([*(Rank("answered", report(at, 4, model(1, 8))) for at in range(2)), busy])
    assert ([rank.state for rank in merged.ranks], merged.older) == (["answered", "answered", "busy", "unknown"], ())
