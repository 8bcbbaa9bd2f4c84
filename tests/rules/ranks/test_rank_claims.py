"""Claims about ranks: nobody is spoken of who was not heard."""

import dataclasses

import pytest

from devwidget.records.finding import Claim, Finding
from devwidget.records.ranks.cluster import Cluster, Rank
from devwidget.records.ranks.rank import Collective, GroupProgress
from devwidget.rules.ranks import rank_claims
from devwidget.rules.ranks.rank_claims import answered, refutes, without_unheard
from tests.strict_claims import quietly_of_ranks

WAIT = Collective("all_reduce", 7, "default", (0, 1, 2), 64, seconds=9.0)
RANKS = (
    Rank(0, "hung", collective=WAIT),
    Rank(1, "answered", groups=(GroupProgress("default", 3, 6, 0),)),
    Rank(2, "unknown"),
    Rank(3, "dead"),
)
CLUSTER = Cluster((), RANKS)
WAITS = Claim("waiting", name="default", call="all_reduce", count=7, ranks=(0,))


def absent(how, *ranks):
    return dataclasses.replace(WAITS, kind="absent", how=how, ranks=ranks)


def test_who_waits_has_said_so():
    assert refutes(CLUSTER, WAITS) == ""
    assert "rank 1 has not said" in refutes(CLUSTER, dataclasses.replace(WAITS, ranks=(0, 1)))
    assert refutes(CLUSTER, dataclasses.replace(WAITS, count=8)) != ""


@pytest.mark.parametrize(("how", "rank"), [("dead", 3), ("not begun", 1), ("unknown", 2)])
def test_why_a_rank_is_absent_is_what_was_heard_of_it(how, rank):
    assert refutes(CLUSTER, absent(how, rank)) == ""


@pytest.mark.parametrize(("how", "rank"), [("dead", 1), ("stopped", 3), ("not begun", 2)])
def test_of_a_rank_that_was_not_heard_nothing_is_said(how, rank):
    assert refutes(CLUSTER, absent(how, rank)) != ""


def test_a_finding_about_a_rank_that_never_answered_is_not_told(monkeypatch):
    monkeypatch.setattr(rank_claims, "is_borne_out", quietly_of_ranks)
    founded = Finding("drifted-copies", "error", None, "`w` differs", "why", claims=answered((0, 1)))
    unfounded = dataclasses.replace(founded, claims=answered((0, 2)))
    kept, left_out = without_unheard(CLUSTER, [founded, unfounded])
    assert (kept, len(left_out)) == ([founded], 1)
    assert refutes(CLUSTER, Claim("answered", ranks=(9,))) == "the job has no rank [9]"
