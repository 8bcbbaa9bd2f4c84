"""A job as a map, rows and sums, on made-up clusters."""

import dataclasses

from devwidget.extras.ranks.records.columns import lay_out_columns
from devwidget.extras.ranks.records.rank import Collective
from devwidget.extras.ranks.views.job import find_spans, group_alike, lay_out_lanes, module_rows, name_lanes
from tests.extras.ranks.records.made_up import cluster, faulty, reports, with_change


def test_the_longest_axis_lies_across_and_the_others_make_the_rows():
    found = lay_out_lanes(cluster(reports()))
    assert (len(found), len(found[0])) == (8, 32)
    assert found[1][:3] == (1, 9, 17)


def on_one_machine(count):
    return cluster([dataclasses.replace(each, host="node0") for each in reports((("rank", count),))])


def test_a_job_without_a_mesh_stands_in_lines():
    assert [len(lane) for lane in lay_out_lanes(on_one_machine(130))] == [64, 64, 2]
    assert set(name_lanes(on_one_machine(130))) == {""}


def test_over_several_machines_each_has_a_row_of_its_name():
    job = cluster(reports((("rank", 20),)))
    assert lay_out_lanes(job) == (tuple(range(8)), tuple(range(8, 16)), (16, 17, 18, 19))
    assert name_lanes(job) == ("node0", "node1", "node2")


def test_of_more_machines_than_can_be_seen_the_ranks_stand_in_lines():
    assert {len(lane) for lane in lay_out_lanes(cluster(reports((("rank", 512),))))} == {64}


def test_a_row_of_a_mesh_is_named_by_the_machine_where_that_is_one():
    assert name_lanes(cluster(reports((("dp", 2), ("tp", 8))))) == ("node0", "node1")
    assert name_lanes(cluster(reports((("dp", 16), ("tp", 2))))) == ("node0", "node1", "node2", "node3")


def test_of_a_mesh_on_more_machines_than_have_a_row_the_longest_axis_stands_across():
    job = cluster(reports((("dp", 32), ("tp", 8))))
    assert [len(lane) for lane in lay_out_lanes(job)] == [32] * 8
    assert set(name_lanes(job)) == {""}


def test_ranks_that_wait_alike_are_told_together():
    job = cluster(reports((("dp", 2), ("tp", 2))))
    waits = [Collective("all_reduce", 7, "tp", (0, 1), seconds=seconds) for seconds in (3.0, 4.0)]
    ranks = [
        dataclasses.replace(rank, state="hung", said=dataclasses.replace(rank.said, collective=waits[rank.number % 2]))
        for rank in job.ranks[:3]
    ]
    job = dataclasses.replace(job, ranks=(*ranks, job.ranks[3]))
    assert [[rank.number for rank in alike] for alike in group_alike(job)] == [[0, 1, 2]]
    later = dataclasses.replace(ranks[1], said=dataclasses.replace(ranks[1].said, step=3))
    job = dataclasses.replace(job, ranks=(ranks[0], later, *job.ranks[2:]))
    assert [[rank.number for rank in alike] for alike in group_alike(job)] == [[0, 2], [1]]


def test_a_rank_that_has_not_said_stands_where_a_mesh_would_put_it():
    assert lay_out_lanes(faulty()) == ((0, 2, 4, 6), (1, 3, 5, 7))


def with_more_memory(*numbers):
    said = reports((("dp", 8),))
    for number in numbers:
        said = with_change(said, number, lambda each: dataclasses.replace(
            each, memory=tuple(dataclasses.replace(one, allocated=3 * one.allocated) for one in each.memory)
        ))  # fmt: skip
    return {span.name: span for span in find_spans(cluster(said), lay_out_columns(cluster(said)))}


def test_one_rank_far_from_all_others_is_the_outlier_and_two_are_none():
    one = with_more_memory(5)
    assert (one["allocated"].outlier, one["allocated"].most[1], one["peak"].outlier) == (5, 5, -1)
    assert with_more_memory(2, 5)["allocated"].outlier == -1


def test_blocks_that_are_alike_are_one_row():
    rows = module_rows(lay_out_columns(cluster(reports((("dp", 2),), layers=5))))
    assert [(row.name, row.depth, row.times) for row in rows] == [
        ("", 0, 1), ("blocks.0–4", 1, 5), ("up", 2, 1), ("down", 2, 1),
    ]  # fmt: skip


def test_a_block_with_something_of_its_own_has_its_own_row():
    columns = lay_out_columns(cluster(reports((("dp", 2),), layers=5)))
    modules = tuple(
        dataclasses.replace(module, wrapper="fully_shard") if module.path == "blocks.2" else module
        for module in columns.modules
    )
    rows = module_rows(dataclasses.replace(columns, modules=modules))
    assert [row.name for row in rows if row.depth == 1] == ["blocks.0–1", "blocks.2", "blocks.3–4"]
