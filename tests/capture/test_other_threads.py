"""Threads that are no part of what is recorded: nothing of theirs is watched, read, hooked or run otherwise."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.patching import operator_key


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@pytest.fixture
def elsewhere():
    """Runs a function in a thread that is older than any recording, and has nothing to do with one."""
    calls, results = [], []
    asked, answered, over = threading.Semaphore(0), threading.Semaphore(0), []

    def work():
        while asked.acquire() and not over:
            results.append(calls.pop()())
            answered.release()

    def run(call):
        calls.append(call)
        asked.release()
        answered.acquire()
        return results.pop()

    thread = threading.Thread(target=work)
    thread.start()
    yield run
    over.append(True)
    asked.release()
    thread.join()


def trained():
    """One step of a training."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    Doubled.apply(model(torch.ones(1, 2))).sum().backward()
    optimizer.step()
    model.load_state_dict(model.state_dict())
    return model


def test_what_another_thread_trains_is_in_no_recording(elsewhere):
    with devwidget.record() as recording:
        elsewhere(trained)
        torch.ones(1).sin()
    assert recording.trace.modules == ()
    assert [op.name for op in recording.trace.ops] == ["ones", "sin"]


def test_the_gradients_of_another_thread_are_not_read(elsewhere, monkeypatch):
    read = []
    monkeypatch.setattr("devwidget.capture.patches.optimizers.check_state", lambda *args: read.append(args))
    with devwidget.record():
        elsewhere(trained)
    assert read == []


def test_a_function_of_another_thread_keeps_its_backward(elsewhere):
    class Own(Doubled):
        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    before = vars(Own)["backward"]
    with devwidget.record():
        elsewhere(lambda: Own.apply(torch.ones(1, requires_grad=True)).sum().backward())
        assert vars(Own)["backward"] is before


def test_a_hook_of_another_thread_is_its_own(elsewhere):
    def hook(grad):
        return grad

    parameter = nn.Parameter(torch.ones(1))
    with devwidget.record():
        elsewhere(lambda: parameter.register_hook(hook))
        assert list(parameter._backward_hooks.values()) == [hook]


def test_a_checkpoint_that_another_thread_loads_is_not_healed(elsewhere):
    model = nn.Sequential(nn.Linear(2, 2))
    state = {f"module.{name}": value for name, value in model.state_dict().items()}
    with devwidget.record(heal=True):
        missing, unexpected = elsewhere(lambda: model.load_state_dict(state, strict=False))
    assert (len(missing), len(unexpected)) == (2, 2)


def test_a_wait_of_another_thread_is_none_of_ours(elsewhere):
    with devwidget.simulate(1), devwidget.record() as recording:
        x = torch.ones(8, device="cuda").to("cpu", non_blocking=True)
        elsewhere(torch.cuda.synchronize)
        x.sum().item()
    assert [crossing.unsafe_read is not None for crossing in recording.trace.crossings] == [True]


def test_a_thread_of_the_engine_has_the_modes_of_whoever_called_backward_and_so_belongs_to_the_recording():
    with devwidget.record() as recording:
        state = recording._recorder._state
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(state.is_here).result()
        modes = operator_key.active_modes()

        def in_engine():
            operator_key.replace_modes(modes)
            here.append(state.is_here())
            operator_key.replace_modes([])
            here.append(state.is_here())

        here = []
        thread = threading.Thread(target=in_engine)
        threading.Thread.start.__wrapped__(thread)
        thread.join()
    assert here == [True, False]


@pytest.mark.parametrize("ends", [True, False])
def test_virtual_gpus_that_begin_or_end_meanwhile_are_no_setting_of_a_step(ends):
    class Switching(nn.Module):
        def forward(self, x):
            if ends:
                simulation.__exit__(None, None, None)
            else:
                simulation.__enter__()
                torch.ones(1, device="cuda")
            return x

    simulation = devwidget.simulate(1)
    if ends:
        simulation.__enter__()
    trace = devwidget.trace(Switching(), torch.ones(1), backward=False, verify=False)
    if not ends:
        simulation.__exit__(None, None, None)
    assert trace.not_restored == ()


def test_gradients_are_read_while_no_other_thread_runs_the_program(elsewhere):
    """To read them beside a thread that computes with them ends the interpreter."""
    beside = devwidget.snapshot(elsewhere(trained))
    assert beside.modules[0].note.startswith("gradients were not read, because thread `Thread-")
    assert [tensor.grad_bytes for tensor in beside.modules[0].tensors] == [0, 0]


def test_gradients_are_read_again_when_the_other_thread_has_ended():
    model, seen = trained(), []
    asked = threading.Event()
    thread = threading.Thread(target=lambda: asked.wait() or seen.append(1))
    thread.start()
    try:
        notes = [devwidget.snapshot(model).modules[0].note for _ in range(3)]
    finally:
        asked.set()
        thread.join()
    assert all(notes)
    assert [devwidget.snapshot(model).modules[0].tensors[0].grad_bytes for _ in range(3)] == [16, 16, 16]
