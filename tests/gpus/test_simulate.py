"""Starting and ending virtual GPUs."""

import os
import subprocess
import sys
import threading
import time
import warnings

import pytest
import torch
import torch._dynamo  # replaces torch.manual_seed when it is first imported, which a backward may do

from devwidget.extras import extras
from devwidget.gpus import active, session, simulate
from devwidget.records.errors import SimulationError
from tests import faults


@pytest.mark.parametrize("compute", [True, *([False] if "meta" in extras() else [])])
def test_ending_puts_every_name_back(compute):
    before = faults.world()
    with simulate(2, compute=compute):
        model = torch.nn.Linear(2, 2).cuda()
        with torch.autocast("cuda"):
            model(torch.ones(1, 2, device="cuda")).sum().backward()
    assert faults.left_behind(before) == []
    assert not torch.cuda.is_available()


def test_an_exception_inside_puts_every_name_back_too():
    before = faults.world()
    with pytest.raises(RuntimeError, match="same device"), simulate(1):
        torch.ones(2, device="cuda") + torch.ones(2)
    assert faults.left_behind(before) == []


def test_a_failing_start_changes_nothing(monkeypatch):
    def broken(patches):
        raise ValueError("broken part")

    before = faults.world()
    monkeypatch.setattr(session, "INSTALLS", (*session.INSTALLS, broken))
    with pytest.raises(ValueError, match="broken part"):
        simulate(1).start()
    assert faults.left_behind(before) == []
    assert active() is None


@pytest.mark.parametrize("gpus", [0, -1, 1.5, True, "2", None, 129, 10**5000], ids=lambda value: type(value).__name__)
def test_a_number_of_gpus_that_makes_no_sense_is_refused(gpus):
    with pytest.raises(SimulationError, match="cannot simulate"):
        simulate(gpus)


@pytest.mark.parametrize(
    "memory",
    ["16GB-ish", "", 0, -5, True, float("nan"), "0GiB", ["1GiB"], ["1GiB", "lots"], "1" * 5000, 10**40, "2000000 TiB"],
    ids=lambda value: type(value).__name__,
)
def test_a_memory_size_that_makes_no_sense_is_refused(memory):
    with pytest.raises(SimulationError):
        simulate(2, memory)


@pytest.mark.parametrize(("memory", "right"), [("511", "16GiB"), ("0.4KiB", "16GiB"), (511, "511GiB")])
def test_bytes_below_one_block_of_the_allocator_were_meant_with_a_unit(memory, right):
    with pytest.raises(SimulationError) as caught:
        simulate(2, memory)
    assert caught.value.what == f"{memory!r} is not a memory size"
    assert caught.value.why == "a size is a number of bytes from 512 to an exbibyte, or a number with a unit"
    assert caught.value.instead == f'memory="{right}"'


@pytest.mark.parametrize(
    ("memory", "expected"),
    [(1024, 1024), ("80 GB", 80 * 10**9), ("1.5 gib", 3 << 29), ("512MiB", 512 << 20), ("512", 512)],
)
@pytest.mark.filterwarnings("ignore:the virtual GPUs were never started")
def test_memory_sizes_are_read_as_written(memory, expected):
    assert simulate(2, memory).memory_bytes == (expected, expected)


def test_each_gpu_can_have_its_own_memory():
    with simulate(2, ["1GiB", "2GiB"]):
        assert [torch.cuda.get_device_properties(i).total_memory for i in range(2)] == [1 << 30, 2 << 30]


def test_the_same_gpus_may_be_asked_for_again_as_a_cell_that_is_run_twice_does():
    outer = simulate(2, "1GiB").start()
    try:
        assert simulate(2, "1GiB").start() is outer
        with simulate(2, "1GiB") as inner:
            assert inner is outer
        assert active() is outer
        with pytest.raises(SimulationError, match=r"2 of 1 GiB\n  why:  4 of 16 GiB and 2 GiB were asked for\n  help: .*off"):
            simulate(4, ["2GiB", "16GiB", "2GiB", "2GiB"]).start()
    finally:
        outer.stop()
    assert active() is None


def test_ending_below_a_mode_of_the_user_leaves_that_mode_alone():
    class Above(torch.utils._python_dispatch.TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls):
            return False

    simulation = simulate(1).start()
    with Above() as above:
        simulation.stop()
        simulation.stop()
        assert torch.utils._python_dispatch._get_current_dispatch_mode_stack() == [above]
    assert not torch.cuda.is_available()


@pytest.mark.process
def test_importing_the_simulator_sets_nothing_up():
    code = "import sys, devwidget.gpus; sys.exit('devwidget.gpus.session' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ}, check=False).returncode == 0


def test_a_thread_that_was_left_alone_ends_on_its_virtual_gpus(monkeypatch):
    monkeypatch.setattr(session, "GRACE_S", 60)
    seen = []

    def work():
        time.sleep(0.1)
        seen.append(torch.cuda.device_count())

    with simulate(2):
        threading.Thread(target=work).start()
    assert seen == [2]


@pytest.fixture
def a_real_gpu(monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", lambda: 1, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)


def test_real_gpus_that_are_in_use_are_not_replaced(a_real_gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(SimulationError, match=r"uses real GPUs[\s\S]*CUDA_VISIBLE_DEVICES"):
        simulate(2).start()
    assert active() is None
    assert torch.cuda.device_count() == 1


def test_virtual_gpus_stand_in_place_of_real_ones_until_they_end(a_real_gpu, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # of the real ones
    with simulate(2):
        assert torch.cuda.device_count() == 2
        assert torch.ones(1, device="cuda:1").tolist() == [1]
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert torch.cuda.device_count() == torch._C._cuda_getDeviceCount() == 1
    assert not torch.cuda.is_initialized()


IMPORTED_IN_A_THREAD = """
import importlib, threading, torch, devwidget
with devwidget.simulate(2):
    importing = threading.Thread(target=importlib.import_module, args=("torch._dynamo",))
    importing.start()
    seen = {torch.cuda.device_count()}
    while importing.is_alive():
        seen.add(torch.cuda.device_count())
assert seen == {2}, seen
"""


@pytest.mark.slow  # `test_moves` has a thread that meets an import at once
@pytest.mark.process
def test_what_torch_imports_late_in_one_thread_takes_no_gpu_from_another():
    assert subprocess.run([sys.executable, "-c", IMPORTED_IN_A_THREAD], env={**os.environ}, check=False).returncode == 0


def test_operators_of_a_library_keep_their_own_kernels_under_autocast():
    with torch.library._scoped_library("devwidget_test", "FRAGMENT") as library:
        library.define("halve(Tensor x) -> Tensor")
        library.impl("halve", lambda x: x.float() / 2, "AutocastCUDA")
        with simulate(gpus=1), torch.autocast("cuda"):
            assert torch.nn.Linear(2, 2).cuda()(torch.ones(1, 2, device="cuda")).dtype is torch.float16


def test_gpus_that_were_asked_for_and_never_started_are_told_at_their_line():
    with pytest.warns(RuntimeWarning, match=r"never started: `simulate\(...\).start\(\)`") as told:
        simulate(2)
    assert told[0].filename == __file__
    given = simulate(1)
    assert "not started" in repr(given)
    given.stop()
    with warnings.catch_warnings(record=True) as quiet:
        simulate(2).start().stop()
        del given
    assert quiet == []
