"""A recording of a long loop: repeated events are folded, so it is as small after many steps as after few."""

import gc
import sys
import tracemalloc

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.memory import curves
from devwidget.capture.patching import registry
from devwidget.capture.recording import births, forward_nodes, parallel_calls


class Loop:
    """A training loop that keeps a hidden state and a running loss, and moves data to and fro."""

    def __init__(self, device, detour):
        self.body = nn.Linear(4, 4).to(device)
        self.model = nn.DataParallel(self.body) if device == "cuda:0" else self.body
        self.optimizer = torch.optim.Adam(self.body.parameters())
        self.device, self.detour = device, detour

    def run(self, steps):
        hidden = torch.zeros(4, 4, device=self.device)
        total = torch.zeros((), device=self.device)
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss = self.model(torch.randn(4, 4, device=self.device) + hidden).pow(2).mean()
            loss.backward()
            self.optimizer.step()
            total = total + loss.detach()
            hidden = (hidden * 0.9).to(self.detour).mul(0.9).to(self.device)
            loss.item()


# A dict that entries join and leave is written anew, as large as it has to be, after so many of them: DataParallel's calls put
# layers in and out. That none is left is seen around each test.
FILTERS = [tracemalloc.Filter(inclusive=False, filename_pattern=registry.__file__)]

# CPython keeps the names that torch's C++ looks up in the cache of its types: up to 4096 strings, more at random.
forget_names = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache


def recorded(loop, steps):
    """Counts of the records, and bytes held just before the recording ends, but for the table of patches."""
    gc.collect()
    tracemalloc.start()
    with devwidget.record() as recording:
        loop.run(steps)
        forget_names()
        gc.collect()
        held = sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(FILTERS).traces)
    tracemalloc.stop()
    trace = recording.trace
    return {name: len(getattr(trace, name)) for name in trace.__slots__ if isinstance(getattr(trace, name), tuple)}, held


LIMITS = (
    (parallel_calls, "MOST_CALLS"),
    (forward_nodes, "MOST_NODES"),
    (forward_nodes, "MOST_THREADS"),
    (births, "FIRST_SWEEP"),
    (curves, "MOST_EVENTS"),
    (curves, "MOST_POINTS"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("device", "detour", "steps"), [("cpu", "cpu", 100), ("cuda:0", "cuda:1", 70)])
def test_a_recording_of_three_times_as_many_steps_is_no_larger(device, detour, steps, monkeypatch):
    for module, limit in LIMITS:  # instead of running thousands of steps
        monkeypatch.setattr(module, limit, 20)
    with devwidget.simulate(2):
        loop = Loop(device, detour)
        recorded(loop, steps)  # fills what is kept once for all
        (few, little), (many, much) = recorded(loop, steps), recorded(loop, 3 * steps)
    assert many == few
    assert much - little < 200 * 2 * steps, "less than one record for each step"


def test_the_first_and_the_last_of_many_crossings_are_kept():
    with devwidget.simulate(1), devwidget.record() as recording:
        for size in range(1, 501):
            torch.ones(size).to("cuda:0")
    crossings = recording.trace.crossings
    assert [crossings[0].shape, crossings[-1].shape] == [(1,), (500,)]
    assert len(crossings) < 100
