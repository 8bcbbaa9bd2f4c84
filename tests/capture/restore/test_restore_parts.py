"""Restoring on virtual GPUs, in DataParallel's threads, and what is left in memory afterwards."""

import gc
import weakref

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.restore import keep_state
from tests.capture.restore.changing_models import Changing
from tests.described import described, differences


def _hop(m, x):
    m.other.to("cuda:1")
    m.third.weight.data = m.third.weight.data.to("cuda:1")
    m.seen = m.seen.cuda(1)
    m.scale.add_(1)


@pytest.mark.parametrize("compute", [True, False])
def test_what_moves_between_virtual_gpus_is_back_on_its_own(compute):
    with devwidget.simulate(2, compute=compute):
        model = Changing(_hop, other=nn.Linear(4, 4), third=nn.Linear(4, 4))
        model.register_buffer("scale", torch.zeros(20_000))
        model.cuda(0)
        model.seen = torch.ones(3, device="cuda:0")
        optimizer = torch.optim.Adam(model.parameters())
        batch = torch.rand(2, 4, device="cuda:0")
        before = described(model, optimizer), [torch.cuda.memory_allocated(index) for index in (0, 1)]
        traced = devwidget.trace(model, batch, loss_fn=torch.sum, optimizer=optimizer)
        assert (traced.error, traced.not_restored) == ("", ())
        del traced
        after = described(model, optimizer), [torch.cuda.memory_allocated(index) for index in (0, 1)]
        assert differences(before, after) == []


class Counting(nn.Module):
    """Writes into storages that are too large to be saved at the start."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(20_000)
        self.lin = nn.Linear(20_000, 3)
        self.register_buffer("calls", torch.zeros(20_000))

    def forward(self, x):
        self.calls.add_(1)
        return self.lin(self.norm(x))


def test_writes_in_the_threads_of_data_parallel_are_undone():
    with devwidget.simulate(2):
        model = nn.DataParallel(Counting().cuda(), [0, 1])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        before = described(model, optimizer)
        traced = devwidget.trace(model, torch.rand(4, 20_000).cuda(), loss_fn=torch.sum, optimizer=optimizer)
        assert (traced.error, traced.not_restored) == ("", ())
        assert differences(before, described(model, optimizer)) == []


def test_nothing_that_was_kept_outlives_the_block():
    model = Changing(lambda m, x: m.big.add_(1), big=torch.zeros(1 << 17), log=[bytearray(b"x")])
    batch = torch.rand(2, 4)
    gone = weakref.ref(batch)
    gc.collect()
    gc.disable()
    try:
        devwidget.trace(model, batch, loss_fn=torch.sum)
        del batch
        assert gone() is None
    finally:
        gc.enable()


def is_ours(value):
    """Whether a class or a function is the package's, a method or a partial of one, or an object of such a class."""
    value = getattr(value, "func", getattr(value, "__func__", value))  # of a partial, of a method
    return f"{getattr(value, '__module__', None)}.".startswith("devwidget.")


def left_to_the_collector(act):
    """Weak references that have a callback, or more than a callback, among what reference counts have not freed."""
    act()
    gc.collect()
    gc.disable()
    try:
        act()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = [each for each in gc.garbage if isinstance(each, weakref.ref)]
        return [each for each in found if any(map(is_ours, (type(each), each.__callback__, each())))]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_no_weak_reference_to_a_module_is_left_to_the_garbage_collector(device):
    """Until 3.13 Python dies where it collects one in the moment in which the module dies."""
    kept = []

    def act():
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to(device)
        kept.append(model)
        devwidget.trace(model, torch.rand(2, 4), loss_fn=torch.sum)  # on the GPU a fault, whose traceback is kept

    with devwidget.simulate(1):
        assert left_to_the_collector(act) == []


def bytes_saved(kept):
    return sum(len(saved.copy) for saved in kept._storages._known.values() if saved.copy is not None)


def test_a_forward_pass_saves_no_large_storage():
    model = nn.Sequential(nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 400))
    with keep_state(model) as kept:
        model(torch.rand(2, 400))
        assert bytes_saved(kept) == 2 * 400 * 4  # the biases, which are small


def test_an_optimizer_step_saves_what_it_writes_once():
    model = nn.Linear(400, 400, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with keep_state(model, optimizer) as kept:
        for _ in range(3):
            model(torch.rand(2, 400)).sum().backward()
            optimizer.step()
        assert bytes_saved(kept) == 400 * 400 * 4
