"""Ctrl-C at the lines that watch a run: nothing stays installed, and the next run is watched as ever."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import devwidget
from devwidget.extras.watch import recorded_steps
from tests import faults

FOLDER = str(Path(recorded_steps.__file__).parent)


def train():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with devwidget.watch(model, optimizer) as run:
        for _ in range(4):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    return run


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=[pytest.mark.fuzz, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("gpus", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_ctrl_c_at_any_line_of_a_watched_run_leaves_nothing_behind(monkeypatch, every, gpus):
    monkeypatch.setattr(recorded_steps, "WARM_UP", 1)
    simulation = devwidget.simulate(gpus) if gpus else None
    if simulation is not None:
        simulation.start()
    try:
        train()
        with faults.LinesRun() as lines:
            train()
        ours = [(line, count) for line, count in lines.counts.items() if line[0].startswith(FOLDER)]
        struck = 0
        for line, count in ours[::every]:
            for nth in set() if faults.cannot_be_interrupted(line) else {1, count}:
                world = faults.world()
                with faults.interrupts(), pytest.raises(KeyboardInterrupt), faults.InterruptAt(line, nth):
                    train()
                assert faults.left_behind(world) == [], f"{line} the {nth}th time"
                struck += 1
        assert struck
        assert list(train().recorded) == [1]
    finally:
        if simulation is not None:
            simulation.stop()
