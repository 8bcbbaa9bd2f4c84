"""Two recorders that must agree: torch's profiler tells of a program what modes tell."""

import pytest
import torch

from tests import zoo
from tests.gradients import tensors
from tests.profiler_engine.agreement import compare_all
from tests.profiler_engine.moving_programs import iterate_moving

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
"""Warnings are those of the programs."""


def iterate_steps(models):
    """Forward and backward; in a first run is made what is made once."""
    for name, model, args, kwargs in models:

        def step(model=model, args=args, kwargs=kwargs):
            torch.manual_seed(0)
            sum(each.float().sum() for each in tensors(model(*args, **kwargs)) if each.requires_grad).backward()

        step()
        yield name, lambda step=step, model=model: (step, model)


def assert_agreed(programs, at_least):
    agreement = compare_all(programs)
    assert agreement.differences == []
    assert agreement.same["operators"] >= at_least


def test_models_are_told_alike():
    assert_agreed(iterate_steps(zoo.iter_core(names=["gpt2", "resnet"], training=True)), 300)


def test_programs_that_move_and_read_are_told_alike():
    assert_agreed(iterate_moving("cpu"), 200)
