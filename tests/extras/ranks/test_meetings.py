"""Collectives of ranks meet by their number in the group, and what ranks disagree on is marked."""

from __future__ import annotations

import pytest

from devwidget.extras.ranks.records.traced_steps import TracedStep, merge_steps
from devwidget.extras.ranks.views.meetings import Meeting, find_meetings
from devwidget.records.parallel import ProcessGroup
from tests.extras.ranks.records.made_up_steps import KIB, begun, sharded, step, world


def met(**steps: TracedStep) -> tuple[Meeting, ...]:
    """Of `r0=..., r1=...`."""
    return find_meetings(merge_steps({int(name[1:]): each for name, each in steps.items()}))


def test_the_nth_of_each_rank_is_one_collective():
    found = met(r0=sharded(2), r1=sharded(2))
    assert [(each.call.kind, each.call.sequence) for each in found] == [
        ("all_gather", 1),
        ("all_gather", 2),
        ("reduce_scatter", 3),
    ]
    assert [each.ranks for each in found] == [(0, 1)] * 3
    assert {each.difference for each in found} == {""}


def test_a_rank_that_did_not_begin_the_last_is_missing_in_it():
    short = step(sharded(3).collectives[:2], world(3))
    *same, last = met(r0=sharded(3), r1=short, r2=sharded(3))
    assert {each.difference for each in same} == {""}
    assert (last.difference, last.missing) == ("missing", (1,))


def test_a_rank_that_was_not_recorded_is_not_called_missing():
    assert {each.missing for each in met(r0=sharded(3), r2=sharded(3))} == {()}


def test_another_kind_at_the_same_place_is_marked_with_its_ranks():
    *_, last = met(r0=sharded(2), r1=sharded(2, backward="all_reduce"))
    assert last.difference == "kind"
    assert last.kinds == (("reduce_scatter", 2 * KIB, (0,)), ("all_reduce", 2 * KIB, (1,)))


@pytest.mark.parametrize(("kind", "difference"), [("all_reduce", "size"), ("all_gather", ""), ("all_to_all", "")])
def test_another_size_is_marked_where_sizes_must_be_equal(kind: str, difference: str):
    (only,) = met(r0=step([begun(kind, 20)], world(2)), r1=step([begun(kind, 20, size=2 * KIB)], world(2)))
    assert only.difference == difference


def test_groups_whose_ranks_did_the_same_are_told_once():
    pairs = [ProcessGroup(str(at), "shard", (2 * at, 2 * at + 1)) for at in range(3)]
    (only,) = met(**{f"r{number}": step([begun("all_gather", 20)], pairs[number // 2]) for number in range(6)})
    assert (only.times, only.group) == (3, pairs[0])


def test_a_message_is_sent_by_one_end_and_taken_by_the_other():
    taken = step([begun("recv", 20, peer=0), begun("recv", 21, 2, peer=0)], world(2))
    sent = step([begun("send", 50, peer=1), begun("send", 60, 2, peer=1)], world(2))
    found = met(r0=sent, r1=taken)
    assert [each.ranks for each in found] == [(0, 1)] * 2
    assert {each.difference for each in found} == {""}


def test_a_message_that_nobody_takes_is_marked_unless_the_other_end_was_not_recorded():
    sent, idle = step([begun("send", 20, peer=1)], world(3)), step([], world(3))
    assert [each.missing for each in met(r0=sent, r1=idle)] == [(1,)]
    assert [each.missing for each in met(r0=sent, r2=idle)] == [()]


def test_a_message_that_is_larger_than_its_room_is_marked():
    sent = step([begun("send", 20, size=2 * KIB, peer=1)], world(2))
    assert [each.difference for each in met(r0=sent, r1=step([begun("recv", 9, peer=0)], world(2)))] == ["size"]
