"""Roles of ranks: nobody is spoken of who was not heard."""

import pytest

from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.rules.over_ranks import ClusterRule, answered, judge_cluster
from devwidget.records.finding import Finding, RankRole
from tests.extras.ranks.records.made_up import silent
from tests.extras.ranks.strict_roles import refutes
from tests.strict_sentences import Unfounded

CLUSTER = Cluster((), tuple(map(silent, range(3), ("hung", "answered", "unknown"))))


def test_a_finding_about_a_rank_that_never_answered_fails_in_tests():
    finding = Finding("drifted-copies", "error", None, "`w` differs", "why", roles=answered((0, 2)))
    with pytest.raises(Unfounded, match="rank 2 was not heard"):
        judge_cluster(CLUSTER, [ClusterRule("drifted-copies", lambda judged: iter((finding,)))])
    assert refutes(CLUSTER, RankRole("answered", ranks=(9,))) == "the job has no rank [9]"
