"""Claims are held against the trace: what it does not bear out is not said."""

import dataclasses
from unittest import mock

from devwidget.rules import claims_checker
from tests.rules.builders import CPU, GPU0, GPU1, fault, findings, operand, step
from tests.strict_claims import quietly

MET = fault(operand("x"), operand("h", CPU, stray=True))


def test_of_a_finding_an_unfounded_note_is_left_out_and_an_unfounded_headline_is_none():
    (found,) = findings(MET)
    with mock.patch.object(claims_checker, "is_borne_out", quietly):
        false = dataclasses.replace(found.claims[1], name="k[0]")
        noted = dataclasses.replace(found, notes=(claims_checker.words_of(false),), claims=(found.claims[0], false))
        (kept_one,), left_out = claims_checker.without_unfounded(step(faults=(MET,)), [noted])
        assert (kept_one.notes, kept_one.claims, left_out) == ((), found.claims[:1], [])
        other = dataclasses.replace(found.claims[0], devices=(GPU0, GPU1))
        headed = dataclasses.replace(found, headline=claims_checker.words_of(other), claims=(other,))
        nothing, left_out = claims_checker.without_unfounded(step(faults=(MET,)), [headed])
        assert (nothing, left_out) == ([], ["wrong-device: what it would say is not borne out by what was seen"])
