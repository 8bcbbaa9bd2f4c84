"""Recordings, simulations and modes of the user that overlap: each sees its own, and torch is as it was afterwards."""

from __future__ import annotations

import asyncio
import gc
import itertools
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

import devwidget
from devwidget.capture import background_births
from tests import faults


class Counting(TorchDispatchMode):
    """A mode of the user."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


class CountingFunctions(TorchFunctionMode):
    def __init__(self):
        self.calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


class Births:
    def __enter__(self):
        background_births.begin_watching()

    def __exit__(self, *exc_info):
        background_births.end_watching()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def step(model, x):
    """Passes through everything that is replaced."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    out = Doubled.apply(model(x))
    out.register_hook(lambda grad: grad)
    out.sum().backward()
    optimizer.step()
    model.load_state_dict(model.state_dict())
    return out


def troubles(trace):
    """Where our own code failed."""
    return [text for text in trace.not_checked if text.startswith("recorder")]


def flags():
    return {name: value for name, value in vars(_python_dispatch).items() if name.startswith("_is_in_")}


@pytest.fixture(autouse=True)
def _world():
    step(nn.Linear(2, 2), torch.ones(1, 2))  # what torch caches once
    world, before = faults.world(Doubled), flags()
    yield
    assert faults.left_behind(world, Doubled) == []
    assert flags() == before


MAKERS = {
    "record": devwidget.record,
    "heal": lambda: devwidget.record(heal=True),
    "simulate": lambda: devwidget.simulate(2),
    "dispatch mode": Counting,
    "function mode": CountingFunctions,
    "births": Births,
}


def interleavings(names):
    """Every order of entering and leaving in which nobody leaves before entering."""
    events = [(number, way) for number in range(len(names)) for way in ("in", "out")]
    for order in itertools.permutations(events):
        if all(order.index((number, "in")) < order.index((number, "out")) for number in range(len(names))):
            yield order


def played(names, order):
    """Run a step between all events."""
    made = [MAKERS[name]() for name in names]
    model, x = nn.Linear(2, 2), torch.ones(1, 2)
    for number, way in order:
        if way == "in":
            made[number].__enter__()
        else:
            made[number].__exit__(None, None, None)
        step(model, x)


STACKS = {
    "dispatch mode": _python_dispatch._get_current_dispatch_mode_stack,
    "function mode": torch.overrides._get_current_function_mode_stack,
}
TRIPLES = [
    ("record", "record", "heal"),
    ("record", "simulate", "births"),
    ("record", "simulate", "record"),
]


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.fuzz)])
@pytest.mark.parametrize("names", TRIPLES, ids="-".join)
def test_what_is_ours_leaves_in_any_order(names, every):
    for order in list(interleavings(names))[::every]:
        played(names, order)


@pytest.mark.parametrize("ours", ["record", "simulate", "births"])
@pytest.mark.parametrize("users", ["dispatch mode", "function mode"])
def test_a_mode_of_the_user_that_outlives_ours_is_the_users_and_works_on(users, ours):
    mode, inner = MAKERS[users](), MAKERS[ours]()
    inner.__enter__()
    with mode:
        torch.ones(1).add(1)
        inner.__exit__(None, None, None)
        assert STACKS[users]()[-1] is mode
        before = mode.calls
        torch.ones(1).add(1)
        assert mode.calls == before + 2


def test_crossed_recordings_see_what_ran_while_they_were_open():
    first, second = devwidget.record(), devwidget.record()
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    first.__enter__()
    model(torch.ones(1, 2))
    second.__enter__()
    model(torch.ones(1, 2))
    first.__exit__(None, None, None)
    model(torch.ones(1, 2))
    second.__exit__(None, None, None)
    model(torch.ones(1, 2))
    assert [{m.path: m.calls for m in each.trace.modules} for each in (first, second)] == [{"": 2, "0": 2, "1": 2}] * 2
    assert [sum(op.count for op in each.trace.ops if op.name == "relu") for each in (first, second)] == [2, 2]


def test_a_simulation_started_inside_a_recording_is_right_and_stopped_after_it():
    with devwidget.record(heal=True) as recording:
        simulation = devwidget.simulate(2).start()
        x = torch.ones(2, device="cuda:0")
        y = torch.ones(2)
        assert (x + y).device == torch.device("cuda", 0)
    assert torch.cuda.device_count() == 2
    assert (x * 2).device == torch.device("cuda", 0)
    simulation.stop()
    assert torch.cuda.device_count() == 0
    (finding,) = recording.trace.findings
    assert (finding.kind, finding.birth.text) == ("wrong-device", "y = torch.ones(2)")


def test_a_recording_outlives_the_simulation_in_which_it_began():
    simulation = devwidget.simulate(2).start()
    model = nn.Linear(2, 2).cuda()
    with devwidget.record() as recording:
        model(torch.ones(1, 2).cuda())
        simulation.stop()
        assert nn.Linear(2, 2)(torch.ones(1, 2)).device.type == "cpu"
    assert recording.trace.virtual_gpus == 2
    assert len(recording.trace.modules) == 2


def test_a_recording_may_end_in_another_thread():
    recording = devwidget.record()
    recording.__enter__()
    thread = threading.Thread(target=recording.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    torch.ones(1).add(1)  # what is left on this thread's stacks does nothing
    assert recording.trace.ops == ()
    with devwidget.record():  # and goes with the next recording
        pass


def test_a_simulation_may_end_in_another_thread():
    simulation = devwidget.simulate(2).start()
    thread = threading.Thread(target=simulation.stop)
    thread.start()
    thread.join()
    assert torch.ones(1).add(1).device.type == "cpu"
    with devwidget.simulate(1):
        assert torch.ones(1, device="cuda").is_cuda


def overlapping(threads, rounds):
    """Recordings in many threads at once; each must see its own model and nothing else."""

    def work(number):
        try:
            width = number + 2
            model = nn.Sequential(nn.Linear(width, width), nn.Tanh())
            for _ in range(rounds):
                with devwidget.record() as recording:
                    step(model, torch.ones(1, width))
                seen = [(m.path, m.calls) for m in recording.trace.modules]
                count = sum(op.count for op in recording.trace.ops if op.name == "tanh")
                if (seen, count) != ([("", 1), ("0", 1), ("1", 1)], 1):
                    wrong.append((number, seen, count))
        except BaseException as error:
            wrong.append((number, error))

    wrong = []
    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return wrong


@pytest.mark.parametrize("rounds", [5, pytest.param(200, marks=pytest.mark.fuzz)])
def test_recordings_in_eight_threads_see_their_own_work(rounds):
    wrong = overlapping(8, rounds)
    print(f"{8 * rounds} recordings in 8 threads: {len(wrong)} wrong")
    assert wrong == []


def test_recordings_that_follow_each_other_without_a_gap_share_one_function():
    recordings = [devwidget.record() for _ in range(5)]
    recordings[0].__enter__()
    functions = []
    for last, following in itertools.pairwise(recordings):
        functions.append(vars(nn.Module)["state_dict"])
        following.__enter__()
        last.__exit__(None, None, None)
    listeners = [len(function.hub.listeners) for function in functions]
    recordings[-1].__exit__(None, None, None)
    assert len(set(map(id, functions))) == 1
    assert listeners == [1] * 4
    assert functions[0].hub.listeners == ()


@pytest.mark.parametrize("walk", ["get_referrers", "get_objects"])
def test_nothing_of_ours_walks_over_the_objects_of_other_threads(walk):
    namespace = {}
    model, x = nn.Linear(2, 2), torch.ones(1, 2)
    with mock.patch.object(gc, walk, side_effect=AssertionError("a walk over all objects")):
        for make in (devwidget.record, lambda: devwidget.simulate(1)):
            with make():
                exec("from torch import load", namespace)
                step(model, x)
        found = devwidget.trace(model, x, loss_fn=torch.sum, optimizer=torch.optim.SGD(model.parameters()))
    assert troubles(found) == []


def test_recordings_of_asyncio_tasks_cross_and_leave_nothing():
    async def task(number):
        with devwidget.record() as recording:
            for _ in range(number + 1):
                await asyncio.sleep(0)
                step(nn.Linear(2, 2), torch.ones(1, 2))
        return recording.trace

    async def main():
        return await asyncio.gather(*(task(number) for number in (3, 0, 2, 1)))

    for trace, own in zip(asyncio.run(main()), (4, 1, 3, 2), strict=True):
        assert sum(m.calls for m in trace.modules) >= own
        assert troubles(trace) == []


def test_a_pool_born_in_a_simulation_is_nobodys_after_it_and_the_next_ones_later():
    def made():
        x = torch.ones(1, device="cuda")
        return str((x + 1).device)

    with ThreadPoolExecutor(1) as pool:
        with devwidget.simulate(1):
            assert pool.submit(made).result() == "cuda:0"
        assert pool.submit(lambda: str(torch.ones(1).add(1).device)).result() == "cpu"
        with pytest.raises((AssertionError, RuntimeError)):
            pool.submit(made).result()
        with devwidget.simulate(1, compute=False):
            pool.submit(lambda: torch.ones(1).add(1)).result()
        with devwidget.simulate(1):
            assert pool.submit(made).result() == "cuda:0"


@pytest.mark.parametrize("make", [devwidget.record, lambda: devwidget.simulate(1)], ids=["record", "simulate"])
def test_imports_inside_mean_what_torch_means_afterwards(make):
    names = "load, from_numpy, tensor, zeros, device, Generator, FloatTensor"
    cuda = "is_available, device_count, Stream, synchronize"
    namespace = {}
    with make():
        exec(f"from torch import {names}\nfrom torch.cuda import {cuda}\nfrom torch.autograd import backward", namespace)
        pickled = pickle.dumps([namespace[name] for name in ("load", "from_numpy", "zeros", "device_count")])
    for owner, group in ((torch, "load, from_numpy, tensor, zeros"), (torch.cuda, cuda), (torch.autograd, "backward")):
        for name in group.split(", "):
            assert namespace[name] == vars(owner)[name] or name == "Stream", name
    assert namespace["device"]("cpu") == torch.device("cpu")
    assert type(namespace["Generator"]()) is torch.Generator
    assert type(namespace["FloatTensor"](2)) is torch.Tensor
    assert isinstance(torch.ones(1), namespace["FloatTensor"])
    assert pickle.loads(pickled) == [torch.load, torch.from_numpy, torch.zeros, torch.cuda.device_count]


def test_a_patch_of_the_user_outlives_a_recording_and_a_simulation():
    for make in (devwidget.record, lambda: devwidget.simulate(1)):
        with make():
            users = mock.patch.object(torch, "from_dlpack", return_value="user")
            users.start()
        assert torch.from_dlpack(None) == "user"
        users.stop()
        with make():
            pass
        assert torch.equal(torch.from_dlpack(torch.ones(1)), torch.ones(1))
