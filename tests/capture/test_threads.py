"""Threads and pools of the program: their work is recorded and healed as the main thread's, and theirs alone."""

from __future__ import annotations

import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from multiprocessing.pool import ThreadPool

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack

import devwidget
from devwidget.capture.patching.mode_stack import dispatch_modes


def by_new_pool(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def by_map(work):
    with ThreadPoolExecutor(1) as pool:
        return next(pool.map(lambda _: work(), [None]))


def by_thread(work):
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def by_process_like_pool(work):
    with ThreadPool(1) as pool:
        return pool.apply(work)


def by_a_thread_of_a_thread(work):
    return by_thread(lambda: by_new_pool(work))


WAYS = [by_new_pool, by_map, by_thread, by_process_like_pool, by_a_thread_of_a_thread]


def faulty():
    bias = torch.ones(2)
    return torch.ones(2, device="cuda") + bias


def modes():
    return [*_get_current_function_mode_stack(), *dispatch_modes()]


@pytest.fixture
def older_pool():
    """A pool whose one thread runs already."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(modes).result()
        yield pool


@pytest.mark.parametrize("way", WAYS)
def test_a_fault_in_a_thread_is_found_and_healed(way):
    with devwidget.simulate(1), devwidget.record(heal=True) as recording:
        assert way(faulty).device.type == "cuda"
    (finding,) = recording.trace.findings
    assert (finding.kind, finding.birth.text) == ("wrong-device", "bias = torch.ones(2)")


def test_a_pool_older_than_the_recording_is_watched_for_its_tasks_alone(older_pool):
    with devwidget.simulate(1), devwidget.record(heal=True) as recording:
        assert older_pool.submit(faulty).result().device.type == "cuda"
    assert [finding.kind for finding in recording.trace.findings] == ["wrong-device"]
    assert older_pool.submit(modes).result() == []


def test_a_process_like_pool_older_than_the_recording_is_watched_too():
    with ThreadPool(1) as pool:
        pool.apply(modes)
        with devwidget.simulate(1), devwidget.record(heal=True) as recording:
            found = [pool.map(lambda _: faulty().device.type, [0, 1]), list(pool.imap(lambda _: faulty().device.type, [0, 1]))]
        assert found == [["cuda", "cuda"]] * 2
        assert pool.apply(modes) == []
    assert [finding.kind for finding in recording.trace.findings] == ["wrong-device"]


def test_a_step_traced_with_a_pool_in_forward_names_the_module():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.branch = nn.Linear(2, 2)

        def forward(self, x):
            return by_new_pool(lambda: self.branch(x) + torch.ones(2))

    with devwidget.simulate(1):
        trace = devwidget.trace(Branches().cuda(), torch.ones(1, 2, device="cuda"))
    (finding,) = trace.findings
    assert finding.kind == "wrong-device"
    (fault,) = trace.faults
    assert (fault.module, fault.phase) == ("", "forward")
    assert {m.path: m.calls for m in trace.modules} == {"": 1, "branch": 1}


def test_what_goes_on_after_the_recording_is_not_in_it():
    begun, over, done = (threading.Event() for _ in range(3))
    seen = []

    def work():
        torch.ones(1).sin()
        begun.set()
        over.wait()
        torch.ones(1).cos()
        seen.append([type(mode).__name__ for mode in modes()])
        done.set()

    with devwidget.record() as recording:
        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
    over.set()
    thread.join()
    names = {op.name for op in recording.trace.ops}
    assert "sin" in names
    assert "cos" not in names
    assert all(name.startswith("Ended") for name in seen[0])


def test_a_task_that_begins_after_the_recording_is_not_watched(older_pool):
    go = threading.Event()
    older_pool.submit(go.wait)
    with devwidget.record() as recording:
        late = older_pool.submit(lambda: (torch.ones(1).cos(), modes())[1])
    go.set()
    assert late.result() == []
    assert "cos" not in {op.name for op in recording.trace.ops}


def test_results_exceptions_and_context_variables_are_as_plain(older_pool):
    variable = contextvars.ContextVar("variable", default="unset")
    error = StopIteration("the user's own")

    def fails():
        raise error

    with devwidget.record():
        assert older_pool.submit(lambda a, *, b: (a, b), 1, b=2).result() == (1, 2)
        assert older_pool.submit(fails).exception() is error
        variable.set("of the caller")
        assert older_pool.submit(variable.get).result() == "unset"
        assert older_pool.submit(contextvars.copy_context().run, variable.get).result() == "of the caller"
        with pytest.raises(TypeError, match=r"submit\(\) missing 1 required positional argument: 'fn'"):
            older_pool.submit()


def test_the_run_of_a_thread_is_its_own():
    class Own(threading.Thread):
        def run(self):
            self.result = torch.ones(2).sum()

    with devwidget.record() as recording:
        thread = Own()
        thread.start()
        thread.join()
    assert "run" not in vars(thread)
    assert "sum" in {op.name for op in recording.trace.ops}


@pytest.mark.parametrize("compute", [None, True, False])
def test_a_call_of_a_thread_may_end_after_the_recording_and_the_simulation(compute):
    """Its mode is switched off while it waits for the call that it made."""
    within, over, met = threading.Event(), threading.Event(), []

    class Slow(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is torch.Tensor.view:
                within.set()
                over.wait(30)
            return super().__torch_function__(func, types, args, kwargs)

    def late(device):
        try:
            torch.ones(2, device=device).as_subclass(Slow).view(3)
        except Exception as error:
            met.append(error)

    simulation = nullcontext() if compute is None else devwidget.simulate(1, compute=compute)
    with simulation, devwidget.record(heal=True):
        thread = threading.Thread(target=late, args=("cpu" if compute is None else "cuda",))
        thread.start()
        assert within.wait(30)
    over.set()
    thread.join()
    (error,) = met
    assert type(error) is RuntimeError
    assert "shape '[3]' is invalid" in str(error)
