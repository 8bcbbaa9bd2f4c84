"""Storages of any size, and writes that torch's dispatcher does not see."""

import _thread

import numpy
import pytest
import torch

import devwidget
from devwidget.capture.restore import storages
from tests.capture.restore.changing_models import Changing, buffered
from tests.older_torch import IS_OLDER

LARGE = 1 << 16
UNSEEN = "`seen` (it was written without torch's dispatcher, for example in another thread)"
GIB = 1 << 30


def _traced(model):
    traced = devwidget.trace(model, torch.rand(2, 4))
    assert traced.error == ""
    return traced.not_restored


def _in_another_thread(change):
    """In one that `threading` does not know, as C++ starts them, and so no recording covers."""

    def changed(m, x):
        done = _thread.allocate_lock()
        done.acquire()
        _thread.start_new_thread(lambda: (change(m, x), done.release()), ())
        done.acquire()

    return changed


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [0, 1])
def test_the_end_of_a_storage_of_any_size_is_put_back(gpus):
    with devwidget.simulate(gpus, memory="24GiB") if gpus else torch.no_grad():
        seen = torch.empty(int(4.4 * GIB), dtype=torch.int8, device="cuda:0" if gpus else "cpu")  # untouched: no memory
        seen[:3], seen[-3:] = 1, 2
        model = Changing(lambda m, x: (m.seen[-3:].fill_(7), m.seen[:3].fill_(7)), seen=seen)
        assert _traced(model) == ()
        assert (seen[:3].tolist(), seen[-3:].tolist()) == ([1, 1, 1], [2, 2, 2])


def test_what_is_too_long_for_a_text_of_c_is_copied_all_the_same(monkeypatch):
    monkeypatch.setattr(storages, "_LONGEST_TEXT", 1000)
    model = buffered(lambda m, x: m.seen.add_(1), torch.arange(float(LARGE)))
    assert _traced(model) == ()
    assert torch.equal(model.seen, torch.arange(float(LARGE)))


def test_a_small_tensor_that_another_thread_writes_stays_and_is_named():
    model = Changing(_in_another_thread(lambda m, x: m.seen.add_(1)), seen=torch.ones(3))
    assert _traced(model) == (UNSEEN,)
    assert model.seen.tolist() == [2, 2, 2]


HIDDEN = {
    "apply_": lambda m, x: m.seen.apply_(lambda value: value + 1),
    "NumPy": lambda m, x: m.seen.numpy().__imul__(-1),
    "DLPack": lambda m, x: numpy.from_dlpack(m.seen).__imul__(2),
}


@pytest.fixture(autouse=True)
def _numpy_may_write(request):
    """Before torch 2.9 what DLPack hands out does not say that it may be written."""
    handed = "DLPack" in request.node.name
    if handed and IS_OLDER and not numpy.from_dlpack(torch.ones(1)).flags.writeable:
        pytest.skip(f"NumPy may not write what torch {torch.__version__} hands out by DLPack")


@pytest.mark.parametrize("name", HIDDEN)
def test_a_large_tensor_that_is_written_past_the_dispatcher_is_put_back(name):
    model = buffered(HIDDEN[name], torch.arange(1.0, LARGE + 1))
    assert _traced(model) == ()
    assert torch.equal(model.seen, torch.arange(1.0, LARGE + 1))


def test_one_element_that_numpy_writes_beside_what_torch_writes_is_put_back():
    model = buffered(lambda m, x: (m.seen[:9].add_(1), m.seen.numpy().__setitem__(77, 5)), torch.zeros(LARGE))
    assert _traced(model) == ()
    assert not model.seen.any()
