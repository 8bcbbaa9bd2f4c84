"""Outputs and gradients are those of the same step without us, bit by bit and with their strides."""

import itertools
from collections import Counter

import pytest
import torch
from torch import nn

import devwidget
from tests import gradients, zoo
from tests.gpus.judges import verdicts
from tests.gradient_programs import PROGRAMS, SHAPES

DTYPES = (torch.float32, torch.float64, torch.bfloat16)
SOME_OPERATORS = ["add", "cat", "nn.functional.batch_norm", "expand", "nn.functional.conv2d"]
SOME_MODULES = ["nn.BatchNorm2d", "nn.Linear", "nn.LSTMCell"]
SOME_MODELS = ["gpt2", "resnet"]
OTHER_ON_GPUS = {torch.float64: {("to", "simulated")}}
"""`to("cpu", torch.float64)` does nothing on the CPU; on a GPU it moves, and its backward hands on a gradient of its own, whose
strides in dimensions of size one stay."""
OTHER_MODULES_ON_GPUS = {torch.bfloat16: {("torch.nn.LinearCrossEntropyLoss", "simulated")}}
"""Where it computes in chunks, torch itself asks whether it is on CUDA (benchmarks/results/robustness.md)."""
OF_A_LEAF = ("hooks_after_accumulation", "two_backwards")
SHAPE = (1, 6, 1, 4)
FEW = ("ones moved", "reversed")


def joined(lists):
    """One list, so that recording and simulation begin once."""
    return [list(itertools.chain(*lists))]


def differences(lists):
    """What differs; the counts are printed."""
    counts, found = Counter(), {}
    for steps in lists:
        one = gradients.compare(steps)
        counts.update(one.counts)
        found.update(one.differences)
    print(dict(sorted(counts.items())))
    assert counts["recorded: same"] > 20
    assert counts["simulated: same"] > 20
    return found


def test_gradients_of_some_modules_are_those_without_us():
    modules = zoo.iter_torch(names=SOME_MODULES, one_each=True, training=True)
    assert differences(joined(gradients.of_modules(modules, torch.float32))) == {}


@pytest.mark.parametrize("shape", [SHAPES[0], *(pytest.param(shape, marks=pytest.mark.fuzz) for shape in SHAPES[1:])], ids=str)
def test_gradients_that_meet_are_held_or_replaced_are_those_without_us(shape):
    assert differences([list(gradients.of_programs(PROGRAMS, shape))]) == {}


class Scaled(nn.Module):
    """A program on images that a parameter has scaled."""

    def __init__(self, run):
        super().__init__()
        self.run, self.scale = run, nn.Parameter(torch.linspace(1, 2, 24).reshape(SHAPE))

    def forward(self, images):
        return self.run(images * self.scale)


def losses_and_gradient(run, step):
    """What the loss function returned, and the gradient of the parameter."""
    losses, model = [], Scaled(run)

    def loss_of(outputs):
        losses.append(sum(each.square().sum() for each in outputs))
        return losses[-1]

    step(model, torch.linspace(-1, 1, 24).reshape(SHAPE), loss_of)
    return [loss.detach() for loss in losses], [model.scale.grad]


def test_a_traced_step_has_the_loss_and_the_gradients_without_us():
    def trace(model, images, loss_of):
        devwidget.trace(model, images, loss_fn=loss_of, restore=False)

    for run in [run for name, run in PROGRAMS.items() if name not in OF_A_LEAF]:
        losses, gradient = losses_and_gradient(run, lambda model, images, loss_of: loss_of(model(images)).backward())
        traced, traced_gradient = losses_and_gradient(run, trace)
        assert gradients.difference(traced_gradient, gradient) == ""
        assert gradients.difference(traced, losses) == ""


def test_gradients_of_some_operators_are_those_without_us():
    assert differences(joined(gradients.of_operators(SOME_OPERATORS, torch.float32, samples=1))) == {}


def test_gradients_of_some_models_are_those_without_us():
    models = zoo.iter_core(names=SOME_MODELS, training=True)
    assert differences(gradients.of_modules(models, torch.float32, FEW)) == {}


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_of_operators_are_those_without_us(dtype):
    found = differences(gradients.of_operators(verdicts.OPERATORS, dtype, samples=3))
    assert {(name.partition("[")[0], name.rpartition(", ")[2]) for name in found} == OTHER_ON_GPUS.get(dtype, set())


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_of_modules_are_those_without_us(dtype, training):
    found = differences(gradients.of_modules(zoo.iter_torch(training=training), dtype))
    assert {(name.partition("[")[0], name.rpartition(", ")[2]) for name in found} == OTHER_MODULES_ON_GPUS.get(dtype, set())


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_gradients_of_models_are_those_without_us(training):
    models = zoo.iter_core(training=training)
    assert differences(gradients.of_modules(models, torch.float32, FEW)) == {}
