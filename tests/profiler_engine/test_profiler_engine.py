"""A recording by torch's own profiler: when it is taken, and that it disturbs nobody."""

import gc
import sys
import threading
import weakref

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture import torch_internals
from devwidget.records.errors import DevwidgetError


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def recorded(act, engine="profiler", **asked):
    with devwidget.record(engine=engine, **asked) as recording:
        act()
    return recording.trace


def test_nothing_is_kept_alive():
    model = net()
    seen = weakref.ref(model)
    with devwidget.record(engine="profiler") as recording:
        model(torch.ones(3, 4))
    assert [event.path for event in recording.trace.modules] == ["", "0", "1", "2"]
    assert recording.trace.checked == ("host-sync",)
    del model
    gc.collect()
    assert seen() is None


def test_a_profiler_of_the_user_gets_what_it_would_get():
    model, own = net(), torch.profiler.profile()

    def act():
        model(torch.ones(3, 4))
        with own:
            model(torch.ones(3, 4))

    trace = recorded(act)
    assert sum(event.count for event in own.key_averages() if event.key == "aten::addmm") == 2
    assert any("profiler of its own" in note for note in trace.not_checked)
    assert sum(op.count for op in trace.ops if op.name == "addmm") == 2


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


def test_auto_takes_modes_where_the_profiler_cannot_serve(monkeypatch):
    def act():
        torch.ones(3).add(1)

    assert recorded(act, "auto").engine == "profiler"
    assert recorded(act, "auto", heal=True).engine == "mode"
    with devwidget.simulate(1):
        assert recorded(act, "auto").engine == "mode"
    monkeypatch.setitem(torch_internals.PROFILER_FIELDS, "torch._C._profiler._ProfilerEvent", "children another_name")
    assert recorded(act, "auto").engine == "mode"


@pytest.mark.parametrize("asked", [{"heal": True}, {"allow": "cuda:0 -> cpu"}, {"verify_hops": True}])
def test_what_only_modes_can_do_is_refused(asked):
    with pytest.raises(DevwidgetError, match=next(iter(asked))):
        devwidget.record(engine="profiler", **asked)


def test_an_exception_goes_its_way_and_is_in_the_trace():
    recording = devwidget.record(engine="profiler")
    with pytest.raises(RuntimeError), recording:
        net()(torch.ones(3, 5))
    assert recording.trace.error.startswith("RuntimeError")
    assert recording.trace.failure is not None


def test_threads_of_the_program_are_said_to_be_missing():
    def act():
        worker = threading.Thread(target=net(), args=(torch.ones(3, 4),))
        worker.start()
        worker.join()

    trace = recorded(act)
    assert any(note.startswith("threads that the program started") for note in trace.not_checked)
    assert trace.modules == ()
