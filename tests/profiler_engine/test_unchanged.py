"""What torch's profiler records runs as without it: outputs, gradients, random states, losses and parameters, bit for bit."""

from __future__ import annotations

import copy
import itertools
import pathlib
import subprocess
import sys
from collections import Counter

import pytest
import torch
from torch import nn
from torch.testing._internal.common_modules import module_db

from tests import gradients, zoo
from tests.simulator.judges import verdicts

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORDED = "profiled"
STEPS, PARTS = 3, 4
FEW = ("ones moved", "reversed")
SOME_OPERATORS = ["add", "cat", "nn.functional.batch_norm", "nn.functional.dropout", "reshape", "expand"]
SOME_MODULES = ["nn.BatchNorm2d", "nn.Linear", "nn.LSTMCell", "nn.TransformerEncoderLayer"]
SOME_MODELS = ["gpt2", "resnet"]


def assert_the_same(lists, at_least):
    """Each step is what it is without a recording; the counts are printed."""
    counts, found = Counter(), {}
    for steps in lists:
        one = gradients.compare(steps, [RECORDED])
        counts.update(one.counts)
        found.update(one.differences)
    print(dict(sorted(counts.items())))
    assert found == {}
    assert counts[f"{RECORDED}: same"] >= at_least


def train(model, args, kwargs):
    """The losses of a short training, the parameters and buffers that it ends with, and the random state."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=0.01)
    torch.manual_seed(0)
    losses = []
    for _ in range(STEPS):
        roots = [each for each in gradients.tensors(model(*args, **kwargs)) if each.requires_grad]
        losses.append(torch.stack([each.abs().float().square().mean() for each in roots]).sum())
        losses[-1].backward()
        optimizer.step()
        optimizer.zero_grad()
    return [*(loss.detach() for loss in losses), *model.state_dict().values(), torch.default_generator.get_state()]


def assert_trained_alike(models, at_least):
    counts = Counter()
    for name, model, args, kwargs in models:
        if not any(each.requires_grad for each in model.parameters()):
            continue
        results = []
        for way in ("plain", "again", RECORDED):
            with gradients.WAYS[way]():
                results.append(train(model, args, kwargs))
        plain, again, recorded = results
        if gradients.difference(again, plain):
            counts["not repeatable"] += 1
            continue
        assert gradients.difference(recorded, plain) == "", name
        counts.update(models=1, losses=STEPS, tensors=len(plain) - STEPS)
    print(dict(counts))
    assert counts["models"] >= at_least


def run(*arguments):
    """What a program prints that is run in a process of its own, and has found nothing wrong."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    print(done.stdout)
    return done.stdout


def test_some_operators_give_what_they_give_without():
    steps = gradients.of_operators(SOME_OPERATORS, torch.float32, 1, FEW)
    assert_the_same([list(itertools.chain(*steps))], 50)


def test_some_modules_give_what_they_give_without():
    steps = gradients.of_modules(zoo.iter_torch(names=SOME_MODULES, one_each=True, training=True), torch.float32, FEW)
    assert_the_same([list(itertools.chain(*steps))], 20)


def test_some_models_are_trained_as_without():
    assert_trained_alike(zoo.iter_core(names=SOME_MODELS, training=True), len(SOME_MODELS))


@pytest.fixture
def same_recursion_limit():
    """The compiler of torch raises it."""
    before = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("same_recursion_limit")
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of that compiler
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.fuzz)])
def test_a_compiled_model_is_trained_as_without(backend):
    layers = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(), nn.Linear(8, 2)
    model, images = nn.Sequential(*layers), torch.randn(5, 6)

    def train_compiled(way, *, compiles_within):
        torch._dynamo.reset()
        compiled = torch.compile(copy.deepcopy(model), backend=backend)
        if not compiles_within:
            compiled(images)  # the deep copy that is trained shares its code
        with gradients.WAYS[way]():
            torch.manual_seed(0)
            losses = []
            for _ in range(STEPS):
                losses.append(compiled(images).square().mean())
                losses[-1].backward()
        found = [each.grad for each in compiled.parameters()], [each.detach() for each in losses]
        return [*itertools.chain(*found), torch.default_generator.get_state()]

    for compiles_within in (False, True):
        plain, recorded = (train_compiled(way, compiles_within=compiles_within) for way in ("plain", RECORDED))
        assert gradients.difference(recorded, plain) == ""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_eight_threads_train_as_alone_beside_a_recording():
    told = run("-m", "tests.beside_threads", "5", "profiler")
    assert "0 troubles" in told


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_ranks_train_as_without_with_ddp_and_with_tensors_of_a_mesh():
    told = run("-m", "tests.distributed.forked", "2", str(ROOT / "tests" / "profiler_engine" / "ranks.py"))
    assert told.count(" 0 differ") == 2


@pytest.mark.fuzz
@pytest.mark.timeout(900)
def test_eight_threads_train_for_minutes_as_alone_beside_a_recording():
    assert "0 troubles" in run("-m", "tests.beside_threads", "120", "profiler")


def part_of(names, part):
    """Each of `PARTS` takes about a minute."""
    return list(names)[part::PARTS]


in_parts = pytest.mark.parametrize("part", range(PARTS))


@in_parts
@pytest.mark.fuzz
@pytest.mark.timeout(1800)
def test_operators_give_what_they_give_without(part):
    steps = gradients.of_operators(part_of(verdicts.OPERATORS, part), torch.float32, 2, FEW)
    assert_the_same(steps, 1_000)


@in_parts
@pytest.mark.fuzz
@pytest.mark.timeout(1800)
def test_modules_give_what_they_give_without(part):
    modules = zoo.iter_torch(names=part_of([info.name for info in module_db], part), training=True)
    assert_the_same(gradients.of_modules(modules, torch.float32, FEW[:1]), 200)


@in_parts
@pytest.mark.fuzz
@pytest.mark.timeout(1800)
def test_models_give_what_they_give_without(part):
    models = zoo.iter_core(names=part_of(zoo.CORE, part), training=True)
    assert_the_same(gradients.of_modules(models, torch.float32, FEW[:1]), 20)


@in_parts
@pytest.mark.fuzz
@pytest.mark.timeout(1800)
def test_models_are_trained_as_without(part):
    assert_trained_alike(zoo.iter_core(names=part_of(zoo.CORE, part), training=True), 10)
