"""Every loss and every parameter of a training is the same, bit by bit, with and without us."""

from __future__ import annotations

import pytest
import torch

import devwidget.integrations
from devwidget.integrations import watch_accelerator
from tests.extras.watch.integrations.trainers import (
    train_accelerate,
    train_lightning,
    train_transformers,
    unwatched,
    virtual_cards,
)

pytestmark = pytest.mark.filterwarnings("ignore")
MEMORY = "8GiB"
"""So much that nobody minds the losses that the tests keep there, 512 bytes a step."""
STEPS = [120, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.fuzz])]


@pytest.mark.parametrize("gpus", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("steps", STEPS)
def test_under_transformers(steps, gpus, tmp_path):
    callback = devwidget.integrations.TransformersCallback(every=25)
    with virtual_cards(gpus, MEMORY):
        plain = train_transformers(steps, [], tmp_path)
    with virtual_cards(gpus, MEMORY):
        watched = train_transformers(steps, [callback], tmp_path)
    assert all(map(torch.equal, plain, watched))
    _assert_silent(callback.run, steps)


@pytest.mark.parametrize("steps", STEPS)
def test_under_lightning(steps, tmp_path):
    pytest.importorskip("lightning")
    callback = devwidget.integrations.LightningCallback(every=25)
    with virtual_cards(1, MEMORY):
        plain = train_lightning(steps, [], tmp_path)
    with virtual_cards(1, MEMORY):
        watched = train_lightning(steps, [callback], tmp_path)
    assert all(map(torch.equal, plain, watched))
    _assert_silent(callback.run, steps)


@pytest.mark.parametrize("steps", STEPS)
def test_under_accelerate(steps, tmp_path):
    runs = []

    def watch(accelerator):
        entered = watch_accelerator(accelerator, every=25)
        runs.append(entered)
        return entered

    with virtual_cards(1, MEMORY):
        plain = train_accelerate(steps, unwatched, tmp_path)
    with virtual_cards(1, MEMORY):
        watched = train_accelerate(steps, watch, tmp_path)
    assert all(map(torch.equal, plain, watched))


def _assert_silent(run, steps):
    assert run.findings == ()
    assert run.result.not_checked == ()
    assert run.steps.total == steps
    assert len(run.recorded) >= 4
