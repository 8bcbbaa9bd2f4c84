"""Batches of loaders that are copied to a GPU."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import devwidget

DATA = TensorDataset(torch.ones(8, 3), torch.ones(8))


def loadings(move, **options):
    with devwidget.simulate(gpus=1), devwidget.record() as recording:
        loader = DataLoader(DATA, batch_size=4, **options)
        for x, _ in loader:
            move(x)
    return [each.loading for each in recording.trace.crossings]


@pytest.mark.parametrize("pinned", [False, True])
def test_a_batch_bears_the_line_of_its_loader(pinned):
    first, second = loadings(lambda x: x.to("cuda"), pin_memory=pinned)
    assert first.loader.text == "loader = DataLoader(DATA, batch_size=4, **options)"
    assert (first.is_pinned, first.is_asynchronous) == (pinned, False)
    assert second == first


def test_a_view_of_a_batch_is_the_batch():
    first, _ = loadings(lambda x: x.reshape(-1).to("cuda", non_blocking=True))
    assert first.is_asynchronous


def test_what_is_computed_from_a_batch_is_another_tensor():
    assert loadings(lambda x: (x * 2).to("cuda")) == [None, None]


def test_a_loader_of_before_has_no_line():
    loader = DataLoader(DATA, batch_size=4)
    with devwidget.simulate(gpus=1), devwidget.record() as recording:
        for x, _ in loader:
            x.cuda()
    assert [each.loading.loader for each in recording.trace.crossings] == [None, None]
