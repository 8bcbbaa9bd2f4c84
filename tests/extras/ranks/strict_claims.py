"""As `tests.strict_sentences`, of what findings over ranks claim."""

from __future__ import annotations

from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.rules import rank_claims
from devwidget.records.finding import Claim
from tests.strict_sentences import Unfounded

quietly = rank_claims.is_borne_out
"""As it is where no test looks."""


def is_borne_out(cluster: Cluster, claim: Claim) -> bool:
    problem = rank_claims.refutes(cluster, claim)
    if problem:
        raise Unfounded(f"{rank_claims.words_of(claim)!r}: {problem}; {claim}")
    return True
