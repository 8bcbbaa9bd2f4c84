"""Batches of inference are steps, also where an optimizer exists; between training steps they are an evaluation."""

import pytest
import torch

import devwidget
from tests.extras.watch.loops import Loop


@pytest.fixture(autouse=True)
def _gpu():
    with devwidget.simulate(1, memory="8MiB"):
        yield


def infer(loop, batches, *, grows=False):
    with torch.no_grad():
        for _ in range(batches):
            out = loop.model(loop.draw_batch(64))
            if grows:
                loop.kept.append(out)


def train(loop, batches):
    for _ in range(batches):
        loop.go_back(loop.model(loop.draw_batch()))


@pytest.mark.parametrize(("before", "trained", "steps"), [(20, 0, 20), (0, 20, 20), (20, 30, 50)])
def test_batches_of_inference_before_training_are_steps(before, trained, steps):
    loop = Loop()
    with loop.watching as run:
        infer(loop, before)
        train(loop, trained)
        infer(loop, 5 if trained else 0)
    assert (run.steps.total, run.findings) == (steps, ())
    first = [10] if before else []
    assert list(run.recorded) == [*first, before + 10] if trained else first


def test_a_model_without_an_optimizer_has_steps_too():
    loop = Loop()
    with devwidget.watch(loop.model) as run:
        infer(loop, 12)
    assert run.steps.total == 12


def test_outputs_of_inference_that_are_kept_are_memory_that_grows():
    loop = Loop()
    with loop.watching as run:
        infer(loop, 180, grows=True)
    (found,) = run.findings
    assert (found.kind, "list `loop.kept`" in found.notes[0]) == ("memory-growth", True)


def test_a_recording_counts_batches_of_inference_and_no_teacher():
    loop = Loop()
    with devwidget.record() as recording:
        recording.attach(loop.model, loop.optimizer)
        for _ in range(3):
            with torch.no_grad():
                target = loop.model(loop.draw_batch())
            loop.go_back(loop.model(loop.draw_batch()) - target)
        infer(loop, 5)
    assert recording.trace.steps == 8
