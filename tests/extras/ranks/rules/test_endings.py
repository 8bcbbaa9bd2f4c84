"""Ranks that have ended: who raised first is named, who lost another by that is not, and what is not known is not said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from devwidget.extras.ranks.records.cluster import Rank
from devwidget.extras.ranks.records.merging import merge
from devwidget.extras.ranks.records.rank import Collective, LastWord, PastCollective
from devwidget.extras.ranks.rules.over_ranks import judge_cluster
from devwidget.records.finding import Finding
from devwidget.records.site import Site
from tests.extras.ranks.records.made_up import NOW, model, report, silent

LINE = Site("/home/ada/train.py", 17, "labels = batch['labels']", "train")
LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:4711"


def ended(number: int, how: Any, error: str = "", after: float = 0.0, **more: Any) -> Rank:
    said = replace(report(number, 4, model(1, 8)), taken=NOW + after, last_word=LastWord(how, error, (LINE,)), **more)
    return Rank(how, said)


def found(*heard: Rank) -> list[Finding]:
    told = judge_cluster(merge(heard, asked=NOW + 60))
    assert told.not_checked == ()
    return list(told.findings)


def test_who_raised_is_named_and_who_lost_it_stands_beside():
    (finding,) = found(
        ended(3, "raised", "ValueError: boom\nsecond line"),
        *(ended(number, "raised", LOST, 0.2) for number in (0, 1)),
        ended(2, "terminated", "SIGTERM", 0.3),
    )
    assert (finding.kind, finding.severity, finding.headline) == ("rank-raised", "error", "rank 3 raised `ValueError: boom`")
    assert finding.fault == LINE
    assert finding.notes == ("then lost their connection: ranks 0-1", "ended by a signal: rank 2")


def test_an_exception_that_came_later_is_no_cause():
    first, later = ended(1, "raised", "KeyError: 'x'"), ended(2, "raised", "AssertionError: ", 30.0)
    (finding,) = found(first, later, *(ended(number, "raised", LOST, 1.0) for number in (0, 3)))
    assert finding.headline == "rank 1 raised `KeyError: 'x'`"
    assert "raised later: rank 2" in finding.notes


def waiting(number: int, state: Any, seconds: float = 9.0, after: float = 0.0) -> Rank:
    waits = Collective("all_reduce", 7, "default", (0, 1, 2, 3), 64, seconds=seconds)
    heard = ended(number, state, "SIGTERM", after, collective=waits)
    return replace(heard, hangs=True)


def test_ranks_that_wait_for_one_that_raised_are_named_in_its_finding():
    (finding,) = found(
        ended(3, "raised", "ValueError: boom"), *(waiting(number, "terminated", after=9.0) for number in range(3))
    )
    assert finding.kind == "rank-raised"
    assert finding.notes[0] == "waiting for it: ranks 0-2"


def test_a_job_that_was_ended_by_hand_while_it_hung_names_who_was_elsewhere():
    idle = ended(3, "terminated", "SIGTERM", groups=())
    behind = replace(idle, said=replace(idle.said, collective=Collective(
        "all_reduce", 6, "default", (0, 1, 2, 3), finished=True), stack=(LINE,)))  # fmt: skip
    (finding,) = found(*(waiting(number, "terminated") for number in range(3)), behind)
    assert finding.headline == "ranks 0-2 waited in `all_reduce` number 7 of `default`, which rank 3 has not reached"
    assert finding.birth == LINE


def test_a_process_that_says_nothing_is_named_where_the_others_lost_their_connection():
    dead = silent(2, "dead", "its process ended without a final report", host="node0", pid=7)
    (finding,) = found(dead, *(ended(number, "raised", LOST) for number in (0, 1, 3)))
    assert finding.kind == "rank-lost"
    assert finding.headline == "rank 2 ended without a final report, and ranks 0-1, 3 lost their connection"


def test_who_was_ended_by_a_signal_before_the_others_lost_it_is_named():
    (finding,) = found(ended(2, "terminated", "SIGTERM"), *(ended(number, "raised", LOST, 0.5) for number in (0, 1, 3)))
    assert finding.headline == "rank 2 ended by a signal, and ranks 0-1, 3 lost their connection"


@pytest.mark.parametrize("how", ["ended", "terminated"])
def test_a_job_that_ended_in_order_or_was_ended_while_it_trained_is_silent(how: str):
    assert found(*(ended(number, how, after=number / 10) for number in range(4))) == []


def test_a_rank_that_left_early_is_named_where_the_others_wait_for_it():
    (finding,) = found(ended(3, "ended", collective=None), *(waiting(number, "terminated", after=9.0) for number in range(3)))
    assert finding.headline == "ranks 0-2 waited in `all_reduce` number 7 of `default`, but rank 3 has finished"


def test_what_was_heard_before_the_others_waited_accuses_nobody():
    """Two jobs that were saved apart: at that time nobody had begun it."""
    early = replace(report(3, 4, model(1, 8)), taken=NOW - 60, collective=Collective(
        "all_reduce", 6, "default", (0, 1, 2, 3), finished=True))  # fmt: skip
    hung = [replace(waiting(number, "terminated"), state="hung") for number in range(3)]
    (finding,) = found(*hung, Rank("answered", early))
    assert (finding.severity, finding.headline.endswith("it is unknown whether rank 3 reached it")) == (
        "warning",
        True,
    )


def past(number: int, size: int) -> PastCollective:
    return PastCollective("all_reduce", number, "default", 0, 4, size, NOW + number)


def test_the_first_place_where_last_words_differ_is_told_and_no_crash_after_it():
    def last(*sizes: int) -> tuple[PastCollective, ...]:
        return tuple(past(10 + at, size) for at, size in enumerate(sizes))

    told = [ended(number, "raised", LOST, last=last(64, 4, 64)) for number in (0, 1)]
    crashed = silent(2, "dead", host="node0", pid=7)
    (finding,) = found(*told, crashed, ended(3, "raised", LOST, last=last(64, 64)))
    assert finding.headline == (
        "number 11 of group `default` is `all_reduce` of 64 bytes on rank 3, `all_reduce` of 4 bytes on ranks 0-1"
    )


def test_whose_word_is_a_timeout_is_not_who_raised():
    assert [finding.kind for finding in found(ended(0, "raised", "DistBackendError: Timed out waiting 1800000ms"))] == [
        "rank-lost"
    ]
