"""A batch of another size keeps its samples, and takes no memory where it is large."""

from __future__ import annotations

import torch

from devwidget.extras.plan.changes import resize_batch


def test_a_small_batch_has_its_samples_in_turn() -> None:
    batch = torch.arange(6).reshape(2, 3)
    assert resize_batch(batch, 0, 2, 3).tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert resize_batch(batch, 1, 3, 2).tolist() == [[0, 1], [3, 4]]
    assert resize_batch(batch, 0, 5, 9) is batch


def test_a_batch_for_a_whole_card_takes_no_memory() -> None:
    batch = torch.ones(8, 16)
    large = resize_batch(batch, 0, 8, 2**30)
    assert large.shape == (2**30, 16)
    assert large.untyped_storage().nbytes() == batch.untyped_storage().nbytes()
