"""A recording by torch's own profiler: what it tells is what modes tell, and nothing is disturbed."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections import Counter
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture import torch_internals
from devwidget.profiler_engine import adapter
from devwidget.profiler_engine.adapter import find_overload, overload_of
from devwidget.profiler_engine.event_tree import ProfiledAllocation, iterate_below
from devwidget.profiler_engine.facts import build_device_curve
from devwidget.profiler_engine.places import EventPlace
from devwidget.profiler_engine.session import ProfilerSession
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError
from tests import zoo
from tests.profiler_engine.moving_programs import iterate_moving

OPERATORS_OF_NO_MODE = {"empty", "empty_like", "detach", "detach_", "scalar_tensor"}
"""What the attention kernel and the leaves make below what a mode sees, and results that no record tells the place of."""


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
        self.mask = torch.ones(8)

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        hidden = torch.mul(hidden, self.mask)
        return self.second(hidden + torch.zeros(8, dtype=torch.float64).float())


def make_step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step():
        loss = model(torch.ones(3, 4)).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    step()
    return step


def record_both(model, step):
    traces = []
    for engine in ("mode", "profiler"):
        with devwidget.record(engine=engine) as recording:
            recording.attach(model)
            step()
        traces.append(recording.trace)
    return traces


def count_operators(trace):
    counts = Counter()
    for op in trace.ops:
        if not op.name.startswith("profiler::") and op.name not in OPERATORS_OF_NO_MODE:
            # A mode says where the first result is, which convolutions may leave out; the profiler where any memory was taken.
            counts[op.name, op.module, op.phase, op.inputs, op.output if op.name != "convolution_backward" else None] += (
                op.count
            )
    return counts


def test_operators_are_those_that_a_mode_sees():
    model = Scaled()
    mode, profiler = record_both(model, make_step(model))
    assert count_operators(profiler) == count_operators(mode)
    assert {op.phase for op in profiler.ops} >= {"forward", "loss", "backward", "optimizer"}


def test_modules_are_those_that_a_mode_sees():
    model = Scaled()
    mode, profiler = record_both(model, make_step(model))
    seen = [[(event.path, event.class_name, event.calls) for event in trace.modules] for trace in (mode, profiler)]
    assert seen[0] == seen[1]


def test_a_line_is_right_or_unknown():
    model = Scaled()
    mode, profiler = record_both(model, make_step(model))
    lines = [{(op.name, op.phase, op.site.line if op.site else None) for op in trace.ops} for trace in (mode, profiler)]
    unknown = {(name, phase) for name, phase, line in lines[1] if line is None}
    assert {each for each in lines[1] if each[2] is not None and each[0] not in OPERATORS_OF_NO_MODE} <= lines[0]
    assert ("add", "forward") in unknown
    assert ("mul", "forward") not in unknown


@pytest.mark.parametrize("name", ["bert", "resnet"])
def test_a_model_of_a_library_runs_the_same_operators(name):
    _, model, args, kwargs = next(iter(zoo.iter_core(names=[name], training=True)))

    def step():
        torch.manual_seed(0)
        outputs = model(*args, **kwargs)
        next(each for each in outputs.values() if each.requires_grad).sum().backward()

    step()
    mode, profiler = record_both(model, step)
    assert count_operators(profiler) == count_operators(mode)


def test_gradients_and_random_numbers_are_those_without_us():
    results = []
    for engine in (None, "profiler"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 6, 1), nn.BatchNorm2d(6), nn.Dropout(), nn.Flatten(), nn.Linear(24, 1))
        with devwidget.record(engine=engine) if engine else torch.enable_grad():
            model(torch.randn(1, 1, 1, 4)).sum().backward()
        results.append([parameter.grad for parameter in model.parameters()] + [torch.rand(3)])
    assert all(torch.equal(one, other) and one.stride() == other.stride() for one, other in zip(*results, strict=True))


def test_nothing_is_kept_alive():
    model = Scaled()
    with devwidget.record(engine="profiler") as recording:
        out = model(torch.ones(3, 4))
    seen = weakref.ref(out), weakref.ref(model)
    assert recording.trace.modules
    del out, model
    gc.collect()
    assert [each() for each in seen] == [None, None]


def test_without_a_model_the_outermost_module_is_the_root():
    model = Scaled()
    with devwidget.record(engine="profiler") as recording:
        model(torch.ones(3, 4))
    assert [event.path for event in recording.trace.modules] == ["", "first", "second"]


def test_a_profiler_of_the_user_gets_what_it_would_get():
    model = Scaled()
    with devwidget.record(engine="profiler") as recording:
        model(torch.ones(3, 4))
        with torch.profiler.profile() as own:
            model(torch.ones(3, 4))
    assert sum(event.count for event in own.key_averages() if event.key == "aten::addmm") == 2
    assert any("profiler of its own" in note for note in recording.trace.not_checked)
    assert sum(op.count for op in recording.trace.ops if op.name == "addmm") == 2


def test_where_another_profiler_runs_it_is_not_disturbed():
    seen = []
    sys.setprofile(lambda *event: seen.append(event))
    try:
        with pytest.raises(DevwidgetError, match="another profiler of Python"):
            devwidget.record(engine="profiler")
        assert sys.getprofile() is not None
    finally:
        sys.setprofile(None)
    with torch.profiler.profile(), pytest.raises(DevwidgetError, match="another profiler of torch"):
        devwidget.record(engine="profiler")


def test_auto_takes_modes_where_the_profiler_cannot_serve():
    def engine(**asked):
        with devwidget.record(engine="auto", **asked) as recording:
            torch.ones(3) + 1
        notes = [note for note in recording.trace.not_checked if "was not taken" in note]
        return recording.trace.engine, *notes

    assert engine() == ("profiler",)
    assert engine(heal=True) == ("mode", "torch's profiler was not taken: only modes know `heal`")
    with devwidget.simulate(1):
        assert engine() == ("mode", "torch's profiler was not taken: GPUs are virtual")


def test_a_torch_whose_profiler_notes_something_else_is_recorded_by_modes(monkeypatch):
    monkeypatch.setitem(torch_internals.PROFILER_FIELDS, "torch._C._profiler._ProfilerEvent", "children another_name")
    with devwidget.record(engine="auto") as recording:
        torch.ones(3) + 1
    assert recording.trace.engine == "mode"
    assert any("is made otherwise" in note for note in recording.trace.not_checked)


def test_what_went_in_tells_the_overload_to_an_older_torch():
    session = ProfilerSession()
    session.start()
    for _, prepare in iterate_moving("cpu"):
        prepare()[0]()
    session.stop()
    events = [each for root in session.roots for each in iterate_below(root) if each.name.startswith("aten::")]
    found = {(each.name, overload_of(each), find_overload(each)) for each in events}
    assert len(found) > 60
    assert [(name, true, told) for name, true, told in found if is_made_alike(name, true) != is_made_alike(name, told)] == []


def is_made_alike(name, overload):
    return [
        adapter.has_kernel(name, overload, key) for key in ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CPU")
    ]


@pytest.mark.parametrize("asked", [{"heal": True}, {"allow": "cuda:0 -> cpu"}, {"verify_hops": True}])
def test_what_only_modes_can_do_is_refused(asked):
    with pytest.raises(DevwidgetError, match=next(iter(asked))):
        devwidget.record(engine="profiler", **asked)


def test_an_engine_that_does_not_exist_is_refused():
    with pytest.raises(DevwidgetError, match="no engine 'fast'"):
        devwidget.record(engine="fast")


def test_an_exception_goes_its_way_and_is_in_the_trace():
    recording = devwidget.record(engine="profiler")
    with pytest.raises(RuntimeError), recording:
        Scaled()(torch.ones(3, 5))
    assert recording.trace.error.startswith("RuntimeError")
    assert recording.trace.failure is not None


def test_silence_is_no_answer_of_rules_that_need_calls():
    model = Scaled()
    with devwidget.record(engine="profiler") as recording:
        model(torch.ones(3, 4))
    assert recording.trace.checked == ("host-sync",)


def test_threads_of_the_program_are_said_to_be_missing():
    model = Scaled()
    with devwidget.record(engine="profiler") as recording:
        worker = threading.Thread(target=model, args=(torch.ones(3, 4),))
        worker.start()
        worker.join()
    assert [note.split(":")[0] for note in recording.trace.not_checked][1] == "threads that the program started"
    assert recording.trace.modules == ()


def test_a_thread_that_runs_beside_is_no_part_of_the_recording():
    model, ends, runs = Scaled(), threading.Event(), threading.Event()

    def train():
        while not ends.is_set():
            model(torch.ones(3, 4)).sum().backward()
            runs.set()

    beside = threading.Thread(target=train)
    beside.start()
    runs.wait()
    with devwidget.record(engine="profiler") as recording:
        recording.attach(model)
        for _ in range(3):
            model(torch.ones(3, 4))
        runs.clear()
        runs.wait()
    ends.set()
    beside.join()
    assert [event.calls for event in recording.trace.modules] == [3, 3, 3]
    assert not any("threads" in note for note in recording.trace.not_checked)


def test_code_that_has_died_leaves_no_line():
    with devwidget.record(engine="profiler") as recording:
        for at in range(20):
            exec(compile("def run():\n    return torch.ones(3).mul(2)\nrun()", f"gone-{at}.py", "exec"), {"torch": torch})
    sites = [op.site for op in recording.trace.ops if op.site is not None]
    assert sum(op.count for op in recording.trace.ops) == 40
    assert {site.file for site in sites} <= {__file__}


def test_numbers_of_python_are_no_tensors_of_the_host():
    with devwidget.record(engine="profiler") as recording:
        torch.ones(3, device="meta") * 2
    assert {str(device) for op in recording.trace.ops for device in op.inputs} == {"meta"}


def test_nothing_is_printed():
    program = "import torch, devwidget\nwith devwidget.record(engine='profiler') as r: torch.ones(3).sum()\nassert r.trace.ops"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


class Event(NamedTuple):
    extra_fields: object


def allocation(number, pointer, size, total, phase="forward"):
    fields = SimpleNamespace(ptr=pointer, alloc_size=size, total_allocated=total, total_reserved=1024)
    return ProfiledAllocation(Event(fields), EventPlace(phase=phase), number)


def test_a_curve_of_memory_has_what_was_there_before_and_what_came():
    events = [
        allocation(1, 7, 100, 300),
        allocation(2, 8, 50, 350),
        allocation(3, 8, -50, 300),
        allocation(4, 5, -30, 270, "backward"),
    ]
    curve = build_device_curve(DeviceId("cuda", 0), events)
    assert [point.allocated for point in curve.points] == [200, 300, 350, 300, 270]
    assert curve.points[0].foreign == 200
    assert (curve.points[2].activations, curve.points[2].other) == (100, 50)
