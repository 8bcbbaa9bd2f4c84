"""Two recorders that must agree: torch's profiler tells of a program what modes tell, and each difference has its reason."""

import pathlib
import subprocess
import sys

import pytest
import torch

import devwidget
from devwidget.capture.patching.mode_stack import DispatchMode, redispatch
from devwidget.profiler_engine.event_tree import EventWalk
from devwidget.profiler_engine.session import ProfilerSession
from tests import zoo
from tests.gradients import tensors
from tests.profiler_engine.agreement import compare_all
from tests.profiler_engine.cpu_programs import CASES, iterate_cases, iterate_mainstream, iterate_steps
from tests.profiler_engine.moving_programs import iterate_moving

pytestmark = [pytest.mark.timeout(1800), pytest.mark.filterwarnings("ignore::UserWarning")]
"""Warnings are those of the programs."""
ROOT = pathlib.Path(__file__).resolve().parents[2]
SOME_MODELS = ["gpt2", "deepseek_v2"]
SOME_MODULES = ["nn.GRUCell", "nn.LSTM", "nn.BatchNorm2d", "nn.CTCLoss", "nn.TransformerEncoderLayer"]
SOME_CASES = ("autocast_half", "metric_helper", "gradient_hooks", "functional_meta", "two_optimizers")
SOME_PROGRAMS = {"accumulation", "amp"}
NEEDS_GPU = {"case_clean_async_copy_with_event", "ddp"}
"""They ask for events and cards by name."""


def assert_agreed(programs, at_least):
    agreement = compare_all(programs)
    print(agreement)
    assert agreement.differences == []
    assert agreement.same["operators"] >= at_least


def test_some_steps_are_told_alike():
    models = [
        *zoo.iter_core(names=SOME_MODELS, training=True),
        *zoo.iter_torch(names=SOME_MODULES, one_each=True, training=True),
    ]
    assert_agreed(iterate_steps(models), 1000)


def test_some_programs_are_told_alike(tmp_path):
    paths = [path for path in CASES if any(name in path.stem for name in SOME_CASES)]
    programs = [*iterate_cases(tmp_path, paths), *iterate_mainstream(tmp_path, SOME_PROGRAMS)]
    assert_agreed(programs, 1000)


def test_programs_that_move_and_read_are_told_alike():
    assert_agreed(iterate_moving("cpu"), 600)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(torch._C, "_acc"), reason="this torch has no backends in Python")
def test_moves_to_another_device_and_waits_for_it_are_told_alike():
    command = [sys.executable, "-W", "ignore", "-m", "tests.profiler_engine.second_device"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@pytest.mark.fuzz
def test_models_of_transformers_are_told_alike():
    assert_agreed(iterate_steps(zoo.iter_core(training=True)), 50_000)


@pytest.mark.fuzz
def test_modules_of_torch_are_told_alike():
    assert_agreed(iterate_steps(zoo.iter_torch(training=True)), 5_000)


@pytest.mark.fuzz
def test_cases_without_a_bug_are_told_alike(tmp_path):
    assert_agreed(iterate_cases(tmp_path, [path for path in CASES if path.stem not in NEEDS_GPU]), 4_000)


@pytest.mark.fuzz
def test_programs_as_people_write_them_are_told_alike(tmp_path):
    programs = [each for each in iterate_mainstream(tmp_path) if each[0] not in NEEDS_GPU]
    for _, prepare in programs:
        prepare()[0]()  # libraries keep what a first run has made
    assert_agreed(programs, 30_000)


def without_numbers(inputs):
    """Numbers of Python are tensors in C++, which a mode does not see as such."""
    numbers = (torch.int64, torch.float64)
    return [(name, [(dtype, size) for dtype, size in given if size or dtype not in numbers]) for name, given in inputs]


class Witness(DispatchMode):
    """What goes into operators, seen where modes see it."""

    def __init__(self):
        self.seen = []

    def __torch_dispatch__(self, func, args, kwargs):
        name = func._schema.name.removeprefix("aten::")
        self.seen.append((name, [(each.dtype, tuple(each.shape)) for each in tensors((args, kwargs))]))
        return redispatch(func, args, kwargs)


def test_dtypes_and_sizes_of_what_goes_in_are_those_that_a_mode_is_given():
    [(_, prepare)] = iterate_steps(zoo.iter_core(names=["bert"], training=True))
    step, model = prepare()
    session, witness = ProfilerSession(), Witness()
    with witness:
        step()
    session.start()
    step()
    session.stop()
    walk = EventWalk(session.roots, model)
    told = [(each.name, [(tensor.dtype, tuple(tensor.sizes)) for tensor in each.tensors]) for each in walk.operators]
    assert without_numbers(told) == without_numbers(witness.seen)
    assert len(told) > 400


def test_what_is_let_go_of_to_meta_is_no_move_for_either():
    def run():
        x = torch.ones(3, 4)
        for _ in range(3):
            there = x.to("meta")
        with torch.inference_mode():
            torch.ones(2).to("meta")
        (there * 2).to(torch.float16)

    assert_agreed([("moves", lambda: (run, torch.nn.Identity()))], 5)


def test_what_runs_for_inference_alone_is_told_too():
    with devwidget.record() as recording:
        inputs = torch.ones(3)
        with torch.inference_mode():
            inputs.to("meta")
            torch.nn.functional.linear(inputs, torch.ones(2, 3))
    names = {op.name for op in recording.trace.ops}
    assert {"_to_copy", "mm"} <= names
    assert "linear" not in names
    assert recording.trace.moves == ()  # nothing is copied to meta
