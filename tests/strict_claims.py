"""In tests a claim that the trace does not bear out is not left out in silence: it fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from devwidget.records.finding import Claim
from devwidget.rules import claims_checker
from devwidget.rules.claim_words import words_of


class Unfounded(BaseException):
    """Of a claim; no `Exception`, so that nobody takes it for the failure of a rule."""


quietly = claims_checker.is_borne_out
"""As it is where no test looks."""


def _is_borne_out(evidence: claims_checker.Evidence, claim: Claim) -> bool:
    problem = evidence.refutes(claim)
    if problem:
        raise Unfounded(f"{words_of(claim)!r}: {problem}; {claim}")
    return True


@contextlib.contextmanager
def strict_claims() -> Iterator[None]:
    """Every claim of every finding is borne out, or this fails."""
    with mock.patch.object(claims_checker, "is_borne_out", _is_borne_out):
        yield
