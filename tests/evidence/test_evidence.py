"""Predictions beside what others measured on real GPUs."""

from __future__ import annotations

import pytest
import torch

from devwidget.records.evidence import compared as evidence
from tests.evidence import predictions
from tests.evidence.__main__ import KEPT, OPEN, PAGE, attention_table, beyond, kept_row, segments_table, table
from tests.evidence.measured import ATTENTION, OUT_OF_MEMORY, ROWS
from tests.evidence.predictions import predicted


@pytest.mark.parametrize(("width", "length"), ATTENTION)
def test_attention_allocates_what_was_measured_to_the_byte(width: int, length: int) -> None:
    assert predictions.attention(width, length) == ATTENTION[width, length]


@pytest.mark.parametrize("width", [16, 32, 64, 128])
def test_what_was_out_of_memory_is(width: int) -> None:
    with pytest.raises(torch.cuda.OutOfMemoryError):
        predictions.attention(width, 16_384, "A10")


@pytest.mark.parametrize("letter", ["B", "D", "F", "H"])
def test_a_figure_is_predicted_within_its_bound(letter: str) -> None:
    check(letter)


@pytest.mark.fuzz
@pytest.mark.parametrize("letter", ["E", "G", "M", "N", "O", "P", "Q", "R", "S", "T", "U", "V", "X"])
def test_a_figure_that_takes_longer_is_predicted_within_its_bound(letter: str) -> None:
    check(letter)


def check(letter: str) -> None:
    """All rows of a source; what stands on the page is what is predicted."""
    off = {
        (row.workload, row.what): beyond(row, predicted(row.workload)[row.what] / row.scale)
        for row in ROWS
        if row.table == letter
    }
    print(*off.items(), sep="\n")
    wrong = [row for row in ROWS if row.table == letter and abs(off[row.workload, row.what]) > row.bound]
    assert off
    assert wrong == []
    assert "\n".join(table(letter)) in PAGE.read_text(encoding="utf-8"), "run python -m tests.evidence"
    kept = KEPT.read_text(encoding="utf-8")
    assert [row for row in ROWS if row.table == letter and kept_row(row) not in kept] == [], "run python -m tests.evidence"


def test_the_rows_that_bands_follow_from_are_those_of_the_page() -> None:
    kept = [(row.source, row.workload, row.what, row.least, row.most, row.counts) for row in evidence.list_compared()]
    sizes = [(round(row.least * row.scale), round(row.most * row.scale)) for row in ROWS]
    assert kept == [(row.table, row.workload, row.what, *size, row.counts) for row, size in zip(ROWS, sizes, strict=True)]


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


def test_the_page_says_what_is_predicted_of_attention_and_what_is_not_predicted() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for part in (attention_table(), segments_table(), OPEN):
        assert "\n".join(part) in text, "run python -m tests.evidence"
