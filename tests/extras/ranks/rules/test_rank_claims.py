"""Claims about ranks: nobody is spoken of who was not heard."""

import dataclasses

from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.rules import rank_claims
from devwidget.extras.ranks.rules.rank_claims import answered, refutes, without_unheard
from devwidget.records.finding import Claim, Finding
from tests.extras.ranks.records.made_up import silent
from tests.extras.ranks.strict_claims import quietly

CLUSTER = Cluster((), tuple(map(silent, range(3), ("hung", "answered", "unknown"))))


def test_a_finding_about_a_rank_that_never_answered_is_not_told(monkeypatch):
    monkeypatch.setattr(rank_claims, "is_borne_out", quietly)
    founded = Finding("drifted-copies", "error", None, "`w` differs", "why", claims=answered((0, 1)))
    unfounded = dataclasses.replace(founded, claims=answered((0, 2)))
    kept, left_out = without_unheard(CLUSTER, [founded, unfounded])
    assert (kept, len(left_out)) == ([founded], 1)
    assert refutes(CLUSTER, Claim("answered", ranks=(9,))) == "the job has no rank [9]"
