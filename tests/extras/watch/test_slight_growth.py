"""A little per step is a leak if tensors keep their graphs until the run ends; caches, limited buffers and results are none."""

from collections import deque

import pytest
import torch

import devwidget
from devwidget.extras.watch import watch
from tests.extras.watch.loops import Loop, told
from tests.sampling import sample

STEPS = 300


@pytest.fixture(autouse=True)
def _gpu(monkeypatch):
    monkeypatch.setattr(watch, "LONG", 140)
    with devwidget.simulate(1, memory="64GiB"):
        yield


def train(turn):
    loop = Loop()
    with loop.watching as run:
        for step in range(STEPS):
            loss = loop.go_back(loop.model(loop.draw_batch()))
            turn(step, loss)
    return run


class Meter:
    def __init__(self):
        self.values = {}

    def add(self, step, value):
        self.values[step] = value


def test_a_loss_that_is_kept_with_its_graph_is_a_hint_that_names_the_list():
    history = []

    def turn(_, loss):
        history.append(loss)

    growth = told(train(turn), "memory-growth")
    assert growth.severity == "info"
    assert growth.headline == "allocated memory of cuda:0 has grown by 512 B per step since step 0"
    assert "`history`" in growth.notes[0]
    assert growth.fault.text == "history.append(loss)"
    assert torch.stack(history).requires_grad


@pytest.mark.slow
def test_losses_that_an_object_keeps_with_their_graphs_are_a_hint():
    meter = Meter()
    growth = told(train(meter.add), "memory-growth")
    assert (growth.severity, "`meter.values`" in growth.notes[0]) == ("info", True)


class Replay:
    def __init__(self, capacity):
        self.capacity, self.items, self.at = capacity, [], 0

    def push(self, _, loss):
        if len(self.items) < self.capacity:
            self.items.append(loss)
        else:
            self.items[self.at] = loss
        self.at = (self.at + 1) % self.capacity


def cache():
    known = {}
    return lambda step, loss: known.setdefault(step % 250, loss)


def epochs():
    kept = []
    return lambda step, loss: kept.clear() if step % 250 == 249 else kept.append(loss)


def queue():
    recent = deque(maxlen=100_000)
    return lambda _, loss: recent.append(loss)


def results():
    losses = []
    return lambda _, loss: losses.append(loss.detach())


@pytest.mark.parametrize(
    "make", sample([lambda: Replay(1000).push, lambda: Replay(250).push, cache, epochs, queue, results], every=3)
)
def test_what_ends_or_is_limited_or_is_a_result_is_silent(make):
    assert train(make()).findings == ()
