"""Predictions beside what others measured on real GPUs."""

from __future__ import annotations

import pytest
import torch

from tests.evidence import predictions
from tests.evidence.__main__ import PAGE, page
from tests.evidence.measured import ATTENTION, TRAINING


@pytest.mark.parametrize(("width", "length"), ATTENTION)
def test_attention_allocates_what_was_measured_to_the_byte(width: int, length: int) -> None:
    assert predictions.attention(width, length) == ATTENTION[width, length]


@pytest.mark.parametrize("width", [16, 32, 64, 128])
def test_what_was_out_of_memory_is(width: int) -> None:
    with pytest.raises(torch.cuda.OutOfMemoryError):
        predictions.attention(width, 16_384, "A10")


@pytest.mark.parametrize("workload", TRAINING)
def test_training_is_within_two_percent_allocated_and_five_reserved(workload: str) -> None:
    allocated, reserved = predictions.training(workload)
    (least, most), (least_reserved, most_reserved) = TRAINING[workload]
    assert least * 0.98 <= allocated <= most * 1.02
    assert least_reserved * 0.95 <= reserved <= most_reserved * 1.05


def test_the_segments_of_a_recorded_run_are_taken_again() -> None:
    recorded, ours = predictions.replayed()
    assert len(recorded) == 289
    assert sorted(ours) == sorted(recorded)


def test_the_page_says_what_is_predicted() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.evidence"
