"""Evidence: what running a step with an edit has shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from devwidget.records.finding import Edit, Finding
from devwidget.records.schema.fields import Size
from devwidget.records.schema.record import Record

Verdict = Literal["works", "doubtful", "fails", "not run"]


@dataclass(frozen=True, slots=True)
class Evidence(Record):
    """What running a step with an edit has shown.

    Attributes:
        verdict: `works` if the step runs twice with the edit as it should; `doubtful` if something speaks against the edit;
            `fails` if the step raises or gives another result; `not run` if it could not be tried.
        reasons: what speaks against the edit, worst first; () if it works.
        edits: the changed lines.
        fixed: findings that are gone with the edit. Hints count neither here nor below.
        new: findings that appear only with it.
        left: findings that stay.
        copied_before: bytes that the step copies between devices without the edit, repairs included.
        copied_after: bytes that it copies with the edit.
        gradients: number of gradients that were compared.
        not_compared: why values and gradients were not compared; "" if they were.
        noticed: what the step did outside of this process while it was tried.
        runs: how often the step was run.
    """

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    fixed: tuple[Finding, ...] = ()
    new: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()
    copied_before: Size = 0
    copied_after: Size = 0
    gradients: Size = 0
    not_compared: str = ""
    noticed: tuple[str, ...] = ()
    runs: Size = 0
