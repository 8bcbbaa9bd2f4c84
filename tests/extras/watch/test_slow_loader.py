"""A loader that slows: the part of the step that takes the time, and the line at which it does."""

import signal
import time

import pytest
import torch
from torch import nn

import devwidget
from devwidget.extras.watch import slow_steps, step_hooks
from tests.extras.watch.loops import Clock, line_of, told

FROM, STEPS = 48, 128


class Points(torch.utils.data.Dataset):
    """Slow from some item on."""

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        if index < FROM:
            return torch.ones(16)
        time.sleep(0.02)
        return torch.ones(16)


def stack(items):
    return torch.stack(items)


def train(dataset, **options):
    model = nn.Linear(16, 4).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = torch.utils.data.DataLoader(torch.utils.data.Subset(dataset, range(len(dataset))), 1, **options)
    with devwidget.watch(model, optimizer) as run:
        for batch in loader:
            model(batch.to("cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    return run


@pytest.fixture
def _gpu():
    with devwidget.simulate(1, memory="1GiB"):
        yield


def test_a_loader_that_slows_is_told_as_what_takes_the_time(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(step_hooks.time, "perf_counter_ns", lambda: clock.now)
    monkeypatch.setattr(slow_steps.WaitingClock, "take_microseconds", lambda _: 0)
    model = nn.Linear(16, 4)
    model.register_forward_hook(lambda *_: clock.pass_time(2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def batches():
        for step in range(240):
            clock.pass_time(20 if step >= 120 else 1)
            yield torch.randn(8, 16)

    with devwidget.watch(model, optimizer, every=10**9) as run:
        for batch in batches():
            model(batch).sum().backward()
            optimizer.step()
    slow = told(run, "slow-steps")
    assert slow.headline == "a step has taken 22 ms since step 129, before 3 ms"
    assert slow.notes[0] == "the code between the steps, such as the loader, takes 20 ms of it, before 1 ms"
    assert any(step.reason == "steps have become slow" for step in run.result.recorded_steps)


@pytest.mark.usefixtures("_gpu")
def test_the_line_is_named_at_which_the_data_set_takes_its_time():
    slow = told(train(Points()), "slow-steps")
    assert (line_of(slow), slow.fault.function) == ("time.sleep(0.02)", "__getitem__")
    assert "% of it was spent at one line in steps " in slow.notes[1]


@pytest.fixture
def _handlers():
    """A loader with workers leaves a handler of signals behind."""
    before = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.usefixtures("_gpu", "_handlers")
def test_of_workers_it_is_named_what_they_run():
    slow = told(train(Points(), num_workers=2, collate_fn=stack), "slow-steps")
    assert line_of(slow) == "for batch in loader:"
    run = f"`Points.__getitem__` (test_slow_loader.py:{Points.__getitem__.__code__.co_firstlineno})"
    joins = f"`stack` (test_slow_loader.py:{stack.__code__.co_firstlineno})"
    assert f"there a loader waits for its 2 workers, which run {run}, {joins}" in slow.notes
