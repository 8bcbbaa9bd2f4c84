"""Steps of ranks become one record: ranks that did the same are one kind."""

from __future__ import annotations

import dataclasses

from devwidget.extras.ranks.records.traced_steps import merge_steps
from devwidget.records.loading.json_io import dumps, loads
from devwidget.records.parallel import ProcessGroup
from tests.extras.ranks.records.made_up import cluster, model, report
from tests.extras.ranks.records.made_up_steps import begun, sharded, step, world


def test_ranks_that_did_the_same_are_one_kind():
    job = merge_steps({number: sharded(8) for number in range(8)})
    assert [kind.ranks for kind in job.kinds] == [((0, 7),)]
    assert {rank.groups for rank in job.ranks} == {(0,)}


def test_groups_of_one_name_and_other_ranks_do_not_make_another_kind():
    pairs = [ProcessGroup(str(at), "shard", (2 * at, 2 * at + 1)) for at in range(2)]
    job = merge_steps({number: step([begun("all_gather", 20)], pairs[number // 2]) for number in range(4)})
    assert [kind.ranks for kind in job.kinds] == [((0, 3),)]
    assert [rank.groups for rank in job.ranks] == [(0,), (0,), (1,), (1,)]
    assert job.groups == tuple(pairs)


def test_a_ring_in_which_each_passes_on_is_one_kind_and_the_ends_of_a_line_are_two():
    ring = {number: step([begun("send", 20, peer=(number + 1) % 4)], world(4)) for number in range(4)}
    line = {number: step([begun("send", 20, peer=1 - number)], world(3)) for number in range(2)}
    assert len(merge_steps(ring).kinds) == 1
    assert len(merge_steps(line).kinds) == 2


def test_a_collective_in_another_module_makes_another_kind_but_its_place_in_the_trace_does_not():
    early, late = (step([begun("all_gather", at)], world(3)) for at in (20, 25))
    moved = step([begun("all_gather", 20, module="down")], world(3))
    assert [kind.ranks for kind in merge_steps({0: early, 1: late, 2: moved}).kinds] == [((0, 1),), ((2, 2),)]


def test_a_cluster_with_a_step_is_read_back_as_it_was_written():
    of = model(1, 4)
    said = [dataclasses.replace(report(number, 2, of), traced=sharded(2)) for number in range(2)]
    found = cluster(said)
    assert found.traced.kinds[0].ranks == ((0, 1),)
    assert loads(dumps(found)) == found
    assert loads(dumps(said[0])) == said[0]
