"""The time that loops wait for a loader: measured where the program waits, without our own."""

import time

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import devwidget


class Items(Dataset):
    """Items that take some time, or many small operators."""

    def __init__(self, seconds=0.0, operators=0, count=48):
        self.seconds, self.operators, self.count = seconds, operators, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        x = torch.ones(16)
        for _ in range(self.operators):
            x = x + 1
        if self.seconds:
            time.sleep(self.seconds)
        return x


def wait_and_stack(items):
    time.sleep(0.1)
    return torch.stack(items)


@pytest.fixture(autouse=True)
def _gpu():
    with devwidget.simulate(gpus=1):
        yield


def train(loader, watcher, epochs=1):
    model = nn.Linear(16, 4).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watcher(model, optimizer) as run:
        for _ in range(epochs):
            for batch in loader:
                model(batch.to("cuda")).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
    return run


def recorded(loader):
    trace = train(loader, lambda *_: devwidget.record()).trace
    return [each for each in trace.findings if each.kind == "slow-loader"], trace


@pytest.mark.parametrize(
    "make", [lambda: DataLoader(Items(0.03), 4), lambda: DataLoader(Items(), 4, collate_fn=wait_and_stack)]
)
def test_a_slow_loader_is_found_at_the_loop(make):
    (found,), trace = recorded(make())
    assert (found.severity, found.fault.text) == ("warning", "for batch in loader:")
    assert "of the time of each step was spent in next(loader)" in found.headline
    (times,) = trace.loaders
    assert (times.batches, times.workers) == (11, 0)
    assert 0.09 < times.seconds / times.batches < 0.3


def test_operators_that_only_a_recording_makes_slow_are_not_counted():
    found, trace = recorded(DataLoader(Items(operators=40), 8))
    (times,) = trace.loaders
    assert (found, times.seconds < times.loop_seconds / 2) == ([], True)


def test_a_fast_loader_is_silent():
    assert recorded(DataLoader(Items(), 4))[0] == []


def test_a_watched_run_finds_a_slow_loader_too():
    run = train(DataLoader(Items(0.005, count=40), 4), devwidget.watch)
    (found,) = run.findings
    assert (found.kind, found.fault.text) == ("slow-loader", "for batch in loader:")


def test_a_watched_run_with_a_fast_loader_is_silent():
    assert train(DataLoader(Items(count=200), 4), devwidget.watch).findings == ()


def test_a_traced_step_measures_its_only_batch():
    loader = DataLoader(Items(0.5), 2)
    trace = devwidget.trace(nn.Linear(16, 4), loader, loss_fn=lambda out: out.sum())
    (found,) = trace.findings
    assert found.kind == "slow-loader"
    assert "of the time of each step was spent in next(loader)" in found.headline


def test_an_error_of_a_data_set_is_the_programs():
    class Broken(Items):
        def __getitem__(self, index):
            time.sleep(0.02)
            if index > 8:
                raise KeyError(index)
            return torch.ones(16)

    with pytest.raises(KeyError):
        recorded(DataLoader(Broken(), 2))
