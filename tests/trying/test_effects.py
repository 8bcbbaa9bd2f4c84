"""A step that leaves something which is not put back is not run again, unless somebody asks for it."""

import itertools
import pathlib
import queue
import subprocess
import sys

import pytest
import torch
from torch import nn

import devwidget
from tests.trying.models import Faulty, first_fix, traced

CALLS = []
RUNNING = torch.zeros(3)
NUMBERS = itertools.count()
TEACHER = nn.BatchNorm1d(4)
QUEUE = queue.Queue()
total = 0


class Meter:
    seen = 0


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=1):
        yield


def append_to_a_list():
    CALLS.append(1)


def assign_a_global():
    global total
    total += 1


def write_a_tensor():
    RUNNING.add_(1)


def draw_a_number():
    next(NUMBERS)


def count_in_a_class():
    Meter.seen += 1


def counted():
    counted.calls = getattr(counted, "calls", 0) + 1


def count_in_a_function():
    counted()


def run_a_teacher():
    TEACHER(torch.ones(3, 4, device="cpu"))


def remembering(seen=[]):  # noqa: B006  the default is what is tested
    seen.append(1)


def fill_a_default():
    remembering()


STATES = {
    append_to_a_list: ("CALLS", lambda: len(CALLS)),
    assign_a_global: ("total", lambda: total),
    write_a_tensor: ("RUNNING", lambda: RUNNING.tolist()),
    draw_a_number: ("NUMBERS", lambda: repr(NUMBERS)),
    count_in_a_class: ("Meter", lambda: Meter.seen),
    count_in_a_function: ("counted", lambda: getattr(counted, "calls", 0)),
    run_a_teacher: ("TEACHER", lambda: TEACHER.running_mean.tolist()),
    fill_a_default: ("remembering", lambda: len(remembering.__defaults__[0])),
}
each_state = pytest.mark.parametrize("act", STATES, ids=lambda act: act.__name__)


@each_state
def test_what_a_step_changes_is_put_back_or_the_step_runs_once(act):
    _, look = STATES[act]
    before = look()
    trace = traced(Faulty(act))
    assert look() == before or trace.step_runs == 1
    assert first_fix(trace).verified == (trace.step_runs > 1)
    assert trace.step_runs in (1, 3, 5)  # what a second step finds may be another state


def dropping():
    return nn.Sequential(Faulty(), nn.Dropout())


def normalizing():
    return nn.Sequential(Faulty(), nn.BatchNorm1d(4))


def freshened(model):
    """With gradients that a step adds to."""
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    return model


@pytest.mark.parametrize(
    ("make", "runs"),
    [(Faulty, 2), (dropping, 2), (lambda: freshened(Faulty().to("cuda:0")), 2), (normalizing, 3)],
    ids=["gradients", "random numbers", "gradients added to", "a buffer written"],
)
def test_a_step_that_leaves_only_gradients_is_its_own_reference_and_runs_once_more_with_the_edit(make, runs):
    trace = traced(make(), loss_fn=torch.sum)
    assert (trace.step_runs, first_fix(trace).verified) == (runs, True)


def test_an_optimizer_has_its_second_step_tried():
    model = Faulty().to("cuda:0")
    trace = traced(model, loss_fn=torch.sum, optimizer=torch.optim.AdamW(model.parameters()))
    assert (trace.step_runs, first_fix(trace).verified) == (3, True)


def test_a_closure_of_a_method_is_put_back_or_the_step_runs_once():
    calls = []

    class Counting(Faulty):
        def forward(self, x):
            calls.append(1)
            shift = torch.zeros(4)
            return self.layer(x) + shift

    trace = traced(Counting())
    assert calls == [] or (calls == [1] and trace.step_runs == 1)


def append_line(path):
    with open(path, "a") as file:
        file.write("x")


def save_a_tensor(path):
    torch.save(torch.ones(1, device="cpu"), str(path))


@pytest.mark.parametrize("write", [append_line, save_a_tensor])
def test_a_step_that_writes_a_file_runs_once(write, tmp_path):
    path = tmp_path / "log.txt"
    trace = traced(Faulty(lambda: write(path)))
    assert (trace.step_runs, first_fix(trace).not_tried) == (1, f"the step wrote to `{path}`")


def test_a_step_that_reads_a_file_is_tried(tmp_path):
    pathlib.Path(tmp_path, "x").write_text("x")
    assert first_fix(traced(Faulty(lambda: pathlib.Path(tmp_path, "x").read_text()))).verified


def test_an_open_file_that_grows_is_seen_and_written_once(tmp_path):
    with open(tmp_path / "log.txt", "w") as file:
        model = Faulty()
        model.act = lambda: file.write("x")
        assert first_fix(traced(model)).not_tried
    assert (tmp_path / "log.txt").read_text() == "x"


def test_a_step_that_changes_what_is_not_put_back_runs_once():
    assert first_fix(traced(Faulty(lambda: QUEUE.put(1)))).not_tried == "some changes of the step could not be undone"


CALLED = {
    "subprocess.Popen": lambda path: subprocess.run([sys.executable, "-c", ""], check=True),
}


@pytest.mark.process
@pytest.mark.parametrize("name", CALLED)
def test_a_step_that_reaches_out_of_the_process_runs_once(name, tmp_path):
    trace = traced(Faulty(lambda: CALLED[name](tmp_path)))
    assert (trace.step_runs, first_fix(trace).not_tried) == (1, f"the step called `{name}`")


def test_asked_for_it_is_tried_all_the_same_and_says_what_may_be_noticed(tmp_path):
    path = tmp_path / "log.txt"
    trace = traced(Faulty(lambda: append_line(path)), verify=True)
    assert first_fix(trace).verified
    assert trace.noticed == (f"the step wrote to `{path}`",)
    assert len(path.read_text()) == trace.step_runs > 1
    assert f"the step ran {trace.step_runs} times: once to trace it, then to verify fixes" in str(trace)
    assert f"side effects outside the step: the step wrote to `{path}`" in str(trace)


def test_a_slow_step_runs_once(monkeypatch):
    from devwidget.trying import side_effects

    monkeypatch.setattr(side_effects, "MOST_SECONDS", 0.0)
    trace = traced(Faulty())
    assert (trace.step_runs, first_fix(trace).not_tried) == (1, "the step took 0 s")
