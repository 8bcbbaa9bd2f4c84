"""The time that loops wait for a loader, with the line that takes it: measured where the program waits, without our own."""

import sys
import threading
import time

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import devwidget
from devwidget.capture.recording.loader_clock import LoaderClock


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
    interval = sys.getswitchinterval()
    with devwidget.simulate(gpus=1):
        yield
    assert sys.getswitchinterval() == interval
    assert not [each for each in threading.enumerate() if each.name == "devwidget-lines"]


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
    ("make", "line"),
    [
        (lambda: DataLoader(Items(0.03), 4), "time.sleep(self.seconds)"),
        (lambda: DataLoader(Items(), 4, collate_fn=wait_and_stack), "time.sleep(0.1)"),
    ],
)
def test_the_line_that_takes_the_time_of_a_loader_is_named(make, line):
    (found,), trace = recorded(make())
    assert (found.severity, found.fault.text) == ("warning", line)
    assert "of the time of each step was spent in next(loader)" in found.headline
    assert "the loop takes its batches at test_loader_clock.py" in found.notes[1]
    (times,) = trace.loaders
    assert (times.batches, times.workers) == (11, 0)
    assert 0.09 < times.seconds / times.batches < 0.3


def test_operators_that_only_a_recording_makes_slow_are_not_counted():
    found, trace = recorded(DataLoader(Items(operators=40), 8))
    (times,) = trace.loaders
    assert (found, times.seconds < times.loop_seconds / 2) == ([], True)


def test_a_fast_loader_is_silent():
    assert recorded(DataLoader(Items(), 4))[0] == []


def test_a_watched_run_names_the_line_too():
    run = train(DataLoader(Items(0.005, count=40), 4), devwidget.watch)
    (found,) = run.findings
    assert (found.kind, found.fault.text) == ("slow-loader", "time.sleep(self.seconds)")


def test_a_watched_run_with_a_fast_loader_is_silent():
    assert train(DataLoader(Items(count=200), 4), devwidget.watch).findings == ()


def test_a_traced_step_measures_its_only_batch():
    loader = DataLoader(Items(0.5), 2)
    trace = devwidget.trace(nn.Linear(16, 4), loader, loss_fn=lambda out: out.sum())
    (found,) = trace.findings
    assert (found.kind, found.fault.text) == ("slow-loader", "time.sleep(self.seconds)")
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


def test_two_threads_that_sample_leave_the_switch_interval():
    before = sys.getswitchinterval()
    threads = [threading.Thread(target=take_slow_batches) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.getswitchinterval() == before


def take_slow_batches():
    clock = LoaderClock()
    batches = iter(range(6))
    for _ in range(5):
        clock.time_batch(slow_next, batches)


def slow_next(batches):
    time.sleep(0.02)
    return next(batches)
