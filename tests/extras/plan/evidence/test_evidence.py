"""Predictions beside what others measured on real GPUs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from devwidget.extras.plan.evidence import compared as evidence
from tests.extras.plan.evidence import predictions
from tests.extras.plan.evidence.__main__ import KEPT, PAGE, kept_rows, page, predict
from tests.extras.plan.evidence.measured import ATTENTION, OUT_OF_MEMORY, ROWS, bound_of
from tests.extras.plan.evidence.predictions import predicted


@pytest.mark.parametrize(("width", "length"), ATTENTION)
def test_attention_allocates_what_was_measured_to_the_byte(width: int, length: int) -> None:
    assert predictions.attention(width, length) == ATTENTION[width, length]


def test_what_was_out_of_memory_is() -> None:
    with pytest.raises(torch.cuda.OutOfMemoryError):
        predictions.attention(16, 16_384, "A10")


SECONDS = dict.fromkeys("BH") | dict.fromkeys("DF", pytest.mark.slow)
"""Sources whose workloads are planned in seconds; those of the others take minutes."""


def as_cases(sources: set[str]) -> list[Any]:
    marks = {letter: SECONDS.get(letter, pytest.mark.fuzz) for letter in sorted(sources)}
    return [pytest.param(letter, marks=[mark] if mark else []) for letter, mark in marks.items()]


@pytest.mark.parametrize("letter", as_cases({row.source for row in ROWS}))
def test_the_figures_of_a_source_are_predicted_as_they_are_kept_and_within_their_bounds(letter: str) -> None:
    rows = [row for row in ROWS if row.source == letter]
    predicted = list(map(predict, rows))
    print(*((row.workload, row.what, row.off) for row in predicted), sep="\n")
    assert [row for row in predicted if abs(row.off) > bound_of(row)] == []
    assert predicted == rows, "run python -m tests.extras.plan.evidence"


def test_the_page_and_the_kept_rows_are_as_they_are_written() -> None:
    assert page(ROWS) == PAGE.read_text(encoding="utf-8"), "run python -m tests.extras.plan.evidence"
    assert kept_rows(ROWS) == KEPT.read_text(encoding="utf-8")


def test_a_band_holds_all_rows_and_follows_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for row in evidence.list_compared() if row.what == "on the card" and row.counts]
    band = evidence.find_band("on the card")
    assert all(row.planned * (1 - band.less) <= row.most and row.least <= row.planned * (1 + band.more) for row in rows)
    new = evidence.Compared("Z", "a new one", "on the card", 130, 130, 100, True)
    monkeypatch.setattr(evidence, "list_compared", lambda: (*rows, new))
    wider = evidence.find_band.__wrapped__("on the card")
    assert (wider.less, wider.more) == (band.less, pytest.approx(0.3, abs=0.0011))
    other = evidence.Compared("Z", "of another program", "on the card", 150, 150, 100, False)
    monkeypatch.setattr(evidence, "list_compared", lambda: (*rows, other))
    assert evidence.find_band.__wrapped__("on the card") == band


@pytest.mark.fuzz
@pytest.mark.parametrize("workload", OUT_OF_MEMORY)
def test_what_was_out_of_memory_on_the_card_is_so_here(workload: str) -> None:
    with pytest.raises(torch.cuda.OutOfMemoryError):
        predicted(workload)


def test_the_segments_of_a_recorded_run_are_taken_again() -> None:
    recorded, ours = predictions.replayed()
    assert len(recorded) == 289
    assert sorted(ours) == sorted(recorded)


def test_every_recorded_segment_has_the_size_that_ours_has() -> None:
    rows = [row for snapshot in predictions.recorded_segments().values() for row in snapshot]
    assert sum(count for *_, count in rows) == 5_830
    assert [row for row in rows if predictions.segment_for(row[0]) != row[1]] == []
