"""Models that are nested as deep as Python's recursion limit allows."""

import sys
import threading

import torch
from torch import nn

import devwidget

LEVELS = 235
"""Four or five frames each, of the thousand that Python allows."""


class Nested(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def tower():
    model = nn.Linear(2, 2)
    for _ in range(LEVELS):
        model = Nested(model)
    return model


def in_a_thread(run):
    """What a call returns on a stack of its own, of which pytest takes nothing."""
    seen = []
    thread = threading.Thread(target=lambda: seen.append(run()))
    thread.start()
    thread.join()
    return seen[0] if seen else None


def recorded(model):
    model(torch.ones(1, 2))  # fits plain
    with devwidget.record() as recording:
        model(torch.ones(1, 2))
    return len(recording.trace.modules)


def test_a_tower_that_fits_the_recursion_limit_plain_fits_it_recorded():
    limit = sys.getrecursionlimit()
    assert in_a_thread(lambda: recorded(tower())) == LEVELS + 1
    assert sys.getrecursionlimit() == limit


def test_a_limit_that_the_program_sets_meanwhile_stays():
    limit = sys.getrecursionlimit()
    try:
        with devwidget.record():
            sys.setrecursionlimit(limit + 7)
        assert sys.getrecursionlimit() == limit + 7
    finally:
        sys.setrecursionlimit(limit)
