"""Settings of torch, of Python and of NumPy are what they were after a step, and a new one of torch is noticed here."""

import contextlib
import decimal
import os
import sys
import warnings

import numpy
import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

import devwidget
from devwidget.capture.restore import keep_state
from devwidget.capture.restore.torch_settings import torch_settings
from tests.older_torch import IS_OLDER

B = torch.backends
SPARSE = torch.sparse.check_sparse_tensor_invariants


CHANGES = {
    "grad mode": (lambda: torch.set_grad_enabled(False), torch.is_grad_enabled),
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
    "default device": (lambda: torch.set_default_device("meta"), torch.get_default_device),
    "threads": (lambda: torch.set_num_threads(torch.get_num_threads() + 1), torch.get_num_threads),
    "deterministic algorithms": (
        lambda: torch.set_deterministic_debug_mode("warn"), torch.get_deterministic_debug_mode),
    "anomaly detection": (lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
                          lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())),
    "threads of autograd": (lambda: torch.autograd.set_multithreading_enabled(False), torch._C._is_multithreading_enabled),
    "precision of products": (lambda: torch.set_float32_matmul_precision("medium"), torch.get_float32_matmul_precision),
    "printing": (lambda: torch.set_printoptions(precision=9, sci_mode=True), lambda: dict(vars(torch._tensor_str.PRINT_OPTS))),
    "denormal numbers": (lambda: torch.set_flush_denormal(True), lambda: sys.float_info.min / 2 == 0.0),
    "autocast": (lambda: torch.set_autocast_enabled("cpu", True), lambda: torch.is_autocast_enabled("cpu")),
    "autocast's dtype": (lambda: torch.set_autocast_dtype("cpu", torch.float16), lambda: torch.get_autocast_dtype("cpu")),
    "autocast's cache": (lambda: torch.set_autocast_cache_enabled(False), torch.is_autocast_cache_enabled),
    "autocast that was entered": (lambda: torch.autocast("cpu").__enter__(), lambda: (
        torch.autocast_increment_nesting(), torch.autocast_decrement_nesting())),
    "flash attention": (lambda: B.cuda.enable_flash_sdp(False), B.cuda.flash_sdp_enabled),
    "precision everywhere": (lambda: setattr(B, "fp32_precision", "ieee"), lambda: B.fp32_precision),
    "precision of CUDA's products": (
        lambda: setattr(B.cuda.matmul, "fp32_precision", "ieee"), lambda: B.cuda.matmul.fp32_precision),
    "sparse invariants": (SPARSE.enable, SPARSE.is_enabled),
    "hooks of all modules": (
        lambda: modules.register_module_forward_hook(lambda *args: None), lambda: list(modules._global_forward_hooks)),
    "hooks of all optimizers": (
        lambda: optimizers.register_optimizer_step_post_hook(lambda *args: None),
        lambda: list(optimizers._global_optimizer_post_hooks)),
    "environment": (lambda: (os.environ.update(NEW_ONE="1"), os.environ.pop("HOME")), lambda: dict(os.environ)),
    "folder": (lambda: os.chdir("/"), os.getcwd),
    "paths": (lambda: sys.path.append("/nowhere"), lambda: list(sys.path)),
    "exceptions nobody catches": (lambda: setattr(sys, "excepthook", print), lambda: sys.excepthook),
    "warnings": (lambda: warnings.filterwarnings("ignore", "something new"), lambda: list(warnings.filters)),
    "NumPy's errors": (lambda: numpy.seterr(all="raise"), numpy.geterr),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _flags_can_be_set(monkeypatch):
    """`torch.testing`, once imported, freezes them for ever."""
    monkeypatch.setattr(getattr(B, "m", B), "__allow_nonbracketed_mutation_flag", True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_is_put_back(name):
    change, read = CHANGES[name]
    before = read()
    with keep_state(nn.Linear(1, 1)) as kept:
        change()
        assert read() != before
    assert (read(), kept.not_restored) == (before, ())


@pytest.fixture
def _context_as_it_was():
    with decimal.localcontext():
        yield


@pytest.mark.usefixtures("_context_as_it_was")
def test_a_setting_that_is_not_put_back_is_named():
    with keep_state(nn.Linear(1, 1)) as kept:
        decimal.getcontext().prec = 5
    assert kept.not_restored == ("`decimal context` (it has another value now)",)


def _read_flags():
    """The switches that torch's C calls by one name for reading and setting, of those that are on or off."""
    names = {name.removeprefix("_get_") for name in dir(torch._C) if f"_set_{name.removeprefix('_get_')}" in dir(torch._C)}
    names -= {"dispatch_mode", "tensor_metadata", "value_trace", "deterministic_algorithms"}
    values = {name: getattr(torch._C, f"_get_{name}")() for name in names}
    return {name: value for name, value in values.items() if type(value) is bool}


@pytest.mark.filterwarnings("ignore")
def test_every_flag_that_is_on_or_off_is_put_back():
    before = _read_flags()
    assert len(before) > 10
    for name, value in before.items():
        with keep_state(nn.Linear(1, 1)) as kept, contextlib.suppress(RuntimeError):  # what this processor cannot do
            getattr(torch._C, f"_set_{name}")(not value)
        assert (_read_flags(), kept.not_restored) == (before, ()), name


def test_a_block_of_warnings_that_ends_elsewhere_keeps_its_filters():
    outer = warnings.filters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        block = keep_state(nn.Linear(1, 1))
        block.__enter__()
    before = list(outer)
    block.__exit__(None, None, None)
    assert warnings.filters is outer
    assert list(outer) == before


def test_hooks_of_a_recording_that_has_ended_meanwhile_do_not_come_back():
    """Another thread's, whose end the restore has not seen; a test that leaves anything in torch's tables fails."""
    block = keep_state(nn.Linear(1, 1))
    with devwidget.record():
        block.__enter__()
    block.__exit__(None, None, None)
    assert list(modules._global_forward_hooks_with_kwargs) == []


def test_hooks_of_a_recording_that_goes_on_stay():
    block = keep_state(nn.Linear(1, 1))
    block.__enter__()
    with devwidget.record() as recording:
        block.__exit__(None, None, None)
        nn.Linear(1, 1)(torch.ones(1, 1))
    assert recording.trace.modules


def test_every_flag_of_torch_that_can_be_read_is_known():
    readers = {name.removeprefix("_get_") for name in dir(torch._C) if f"_set_{name.removeprefix('_get_')}" in dir(torch._C)}
    kept = {switch.word for switch in torch_settings()}
    assert readers - kept - set(NO_FLAGS) == set()


NO_FLAGS = (
    *("deterministic_algorithms", "dispatch_mode", "graph_exec_group", "only_lift_cpu_tensors", "tensor_metadata"),
    *("thread_name", "tracing_state", "value_trace", "torch_function_state"),
)
"""Of one tensor, one thread or inside of torch; and one that is put back together with another."""


def test_every_property_of_a_backend_is_known():
    backends = [each for name, each in sys.modules.items() if name.startswith("torch.backends")]
    found = {
        f"{each.__name__}.{name}"
        for each in backends
        for name, value in vars(type(each)).items()
        if isinstance(value, B.ContextProp)
    }
    names = {name.removeprefix("torch.backends.") for name in found}
    assert names - BACKEND_PROPERTIES - {"cudnn.benchmark_limit"} == set()
    assert BACKEND_PROPERTIES - names == set() or IS_OLDER


BACKEND_PROPERTIES = {
    *("fp32_precision", "miopen.immediate"),
    *(f"cudnn.{name}" for name in ("allow_tf32", "benchmark", "depthwise_kernel")),
    *(f"cudnn.{name}" for name in ("deterministic", "enabled", "fp32_precision")),
    *(f"mkldnn.{name}" for name in ("allow_tf32", "deterministic", "enabled", "fp32_precision")),
}
