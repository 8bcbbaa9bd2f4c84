"""Settings of torch, of Python and of NumPy are what they were after a step, and a new one of torch is noticed here."""

import ast
import decimal
import gc
import importlib
import locale
import logging
import operator
import os
import subprocess
import sys
import warnings

import numpy
import pytest
import torch
import torch.backends.opt_einsum
from torch import nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

import devwidget
from devwidget.capture.restore import keep_state
from devwidget.capture.restore.torch_settings import torch_settings
from tests.capture.restore.changing_models import Changing
from tests.older_torch import IS_OLDER

B = torch.backends
DISTRIBUTION = torch.distributions.Distribution
SPARSE = torch.sparse.check_sparse_tensor_invariants


def _precision(owner):
    return _setting(owner, "fp32_precision", lambda now: "ieee")


def _flag(owner, name):
    return _setting(owner, name, operator.not_)


def _setting(owner, name, choose):
    """Its owner is looked up when it is used: older torch has neither."""
    find = operator.attrgetter(owner)
    return lambda: setattr(find(torch), name, choose(getattr(find(torch), name))), lambda: getattr(find(torch), name)


def _another_engine():
    return next(each for each in B.quantized.supported_engines if each not in ("none", B.quantized.engine))


CHANGES = {
    "grad mode": (lambda: torch.set_grad_enabled(False), torch.is_grad_enabled),
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
    "default tensor type": (lambda: torch.set_default_tensor_type(torch.DoubleTensor), torch.get_default_dtype),
    "default device": (lambda: torch.set_default_device("meta"), torch.get_default_device),
    "threads": (lambda: torch.set_num_threads(torch.get_num_threads() + 1), torch.get_num_threads),
    "deterministic algorithms": (
        lambda: torch.set_deterministic_debug_mode("warn"), torch.get_deterministic_debug_mode),
    "filling of memory": _flag("utils.deterministic", "fill_uninitialized_memory"),
    "anomaly detection": (lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
                          lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())),
    "threads of autograd": (lambda: torch.autograd.set_multithreading_enabled(False), torch._C._is_multithreading_enabled),
    "precision of products": (lambda: torch.set_float32_matmul_precision("medium"), torch.get_float32_matmul_precision),
    "printing": (lambda: torch.set_printoptions(precision=9, sci_mode=True), lambda: dict(vars(torch._tensor_str.PRINT_OPTS))),
    "denormal numbers": (lambda: torch.set_flush_denormal(True), lambda: sys.float_info.min / 2 == 0.0),
    "warnings always": (lambda: torch.set_warn_always(True), torch.is_warn_always_enabled),
    "autocast": (lambda: torch.set_autocast_enabled("cpu", True), lambda: torch.is_autocast_enabled("cpu")),
    "autocast's dtype": (lambda: torch.set_autocast_dtype("cpu", torch.float16), lambda: torch.get_autocast_dtype("cpu")),
    "autocast's cache": (lambda: torch.set_autocast_cache_enabled(False), torch.is_autocast_cache_enabled),
    "autocast that was entered": (lambda: torch.autocast("cpu").__enter__(), lambda: (
        torch.autocast_increment_nesting(), torch.autocast_decrement_nesting())),
    "flash attention": (lambda: B.cuda.enable_flash_sdp(False), B.cuda.flash_sdp_enabled),
    "mathematical attention": (lambda: B.cuda.enable_math_sdp(False), B.cuda.math_sdp_enabled),
    "efficient attention": (lambda: B.cuda.enable_mem_efficient_sdp(False), B.cuda.mem_efficient_sdp_enabled),
    "cuDNN's attention": (lambda: B.cuda.enable_cudnn_sdp(not B.cuda.cudnn_sdp_enabled()), B.cuda.cudnn_sdp_enabled),
    "reduction in attention": (
        lambda: B.cuda.allow_fp16_bf16_reduction_math_sdp(True), lambda: B.cuda.fp16_bf16_reduction_math_sdp_allowed()),
    "TF32 in products": _flag("backends.cuda.matmul", "allow_tf32"),
    "float16 in products": _flag("backends.cuda.matmul", "allow_fp16_reduced_precision_reduction"),
    "bfloat16 in products": _flag("backends.cuda.matmul", "allow_bf16_reduced_precision_reduction"),
    "accumulation of float16": _flag("backends.cuda.matmul", "allow_fp16_accumulation"),
    "cuDNN": _flag("backends.cudnn", "enabled"),
    "cuDNN's benchmark": _flag("backends.cudnn", "benchmark"),
    "cuDNN's determinism": _flag("backends.cudnn", "deterministic"),
    "cuDNN's TF32": _flag("backends.cudnn", "allow_tf32"),
    "MIOpen": _flag("backends.miopen", "immediate"),
    "oneDNN": _flag("backends.mkldnn", "enabled"),
    "oneDNN's determinism": _flag("backends.mkldnn", "deterministic"),
    "NNPACK": (lambda: B.nnpack.set_flags(False), lambda: torch._C._get_nnpack_enabled()),
    "precision everywhere": _precision("backends"),
    "precision of CUDA's products": _precision("backends.cuda.matmul"),
    "precision of cuDNN": _precision("backends.cudnn.conv"),
    "precision of oneDNN": _precision("backends.mkldnn"),
    "einsum": _flag("backends.opt_einsum", "enabled"),
    "quantized engine": (lambda: setattr(B.quantized, "engine", _another_engine()), lambda: B.quantized.engine),
    "fast path of attention": (lambda: B.mha.set_fastpath_enabled(False), B.mha.get_fastpath_enabled),
    "flags that are frozen": (B.disable_global_flags, B.flags_frozen),
    "sparse invariants": (SPARSE.enable, SPARSE.is_enabled),
    "validation of distributions": (
        lambda: DISTRIBUTION.set_default_validate_args(not DISTRIBUTION._validate_args), lambda: DISTRIBUTION._validate_args),
    "conversion of parameters": (lambda: torch.__future__.set_overwrite_module_params_on_conversion(True),
                                 torch.__future__.get_overwrite_module_params_on_conversion),
    "swapping of parameters": (lambda: torch.__future__.set_swap_module_params_on_conversion(True),
                               torch.__future__.get_swap_module_params_on_conversion),
    "folder of the hub": (lambda: torch.hub.set_dir("/tmp/elsewhere"), torch.hub.get_dir),
    "byte order": (lambda: torch.serialization.set_default_load_endianness(torch.serialization.LoadEndianness.BIG),
                   torch.serialization.get_default_load_endianness),
    "checksums of files": (
        lambda: torch.serialization.set_crc32_options(False), lambda: torch.serialization.get_crc32_options()),
    "mapping of files": (lambda: torch.serialization.set_default_mmap_options(1), torch.serialization.get_default_mmap_options),
    "sharing": (lambda: torch.multiprocessing.set_sharing_strategy("file_system"), torch.multiprocessing.get_sharing_strategy),
    "hooks of all modules": (
        lambda: modules.register_module_forward_hook(lambda *args: None), lambda: list(modules._global_forward_hooks)),
    "hooks of all optimizers": (
        lambda: optimizers.register_optimizer_step_post_hook(lambda *args: None),
        lambda: list(optimizers._global_optimizer_post_hooks)),
    "environment": (lambda: os.environ.update(HOME="elsewhere", NEW_ONE="1"), lambda: dict(os.environ)),
    "environment, less": (lambda: os.environ.pop("HOME"), lambda: dict(os.environ)),
    "folder": (lambda: os.chdir("/"), os.getcwd),
    "paths": (lambda: sys.path.append("/nowhere"), lambda: list(sys.path)),
    "switch interval": (lambda: sys.setswitchinterval(0.25), sys.getswitchinterval),
    "garbage collector": (lambda: gc.set_threshold(7, 7, 7), gc.get_threshold),
    "exceptions nobody catches": (lambda: setattr(sys, "excepthook", print), lambda: sys.excepthook),
    "level of a logger": (lambda: logging.getLogger("torch").setLevel(7), lambda: logging.getLogger("torch").level),
    "handlers": (lambda: logging.root.addHandler(logging.NullHandler()), lambda: list(logging.root.handlers)),
    "decimal": (lambda: setattr(decimal.getcontext(), "prec", 5), lambda: decimal.getcontext().prec),
    "locale": (lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8"), lambda: locale.setlocale(locale.LC_ALL)),
    "warnings": (lambda: warnings.filterwarnings("ignore", "something new"), lambda: list(warnings.filters)),
    "NumPy's errors": (lambda: numpy.seterr(all="raise"), numpy.geterr),
    "NumPy's printing": (lambda: numpy.set_printoptions(precision=2), numpy.get_printoptions),
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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["precision everywhere", "printing", "environment", "hooks of all modules"])
def test_a_setting_that_a_traced_step_changes_is_put_back(name):
    change, read = CHANGES[name]
    before = read()
    traced = devwidget.trace(Changing(lambda m, x: change()), torch.rand(2, 4))
    assert (read(), traced.not_restored) == (before, ())


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


ELSEWHERE = {
    "torch.set_num_interop_threads": "once only, before anything runs in parallel",
    "torch.set_default_tensor_type": "sets the default dtype and device",
    "torch.set_anomaly_enabled": "anomaly detection",
    "torch.set_autocast_gpu_dtype": "autocast", "torch.set_autocast_cpu_dtype": "autocast",
    "torch.set_autocast_xla_dtype": "autocast", "torch.set_autocast_ipu_dtype": "autocast",
    "torch.set_autocast_cpu_enabled": "autocast", "torch.set_autocast_xla_enabled": "autocast",
    "torch.set_autocast_ipu_enabled": "autocast", "torch.set_autocast_enabled": "autocast",
    "torch.set_autocast_dtype": "autocast", "torch.set_autocast_cache_enabled": "autocast's cache",
    "torch.set_default_device": "default device", "torch.set_default_dtype": "default dtype",
    "torch.set_deterministic_debug_mode": "deterministic algorithms", "torch.set_flush_denormal": "denormal numbers",
    "torch.set_float32_matmul_precision": "a flag", "torch.set_warn_always": "a flag", "torch.set_num_threads": "threads",
    "torch._tensor_str.set_printoptions": "printing", "torch.random.set_rng_state": "random generators",
    "torch.autograd.grad_mode.set_grad_enabled": "grad mode", "torch.autograd.anomaly_mode.set_detect_anomaly": "anomalies",
    "torch.autograd.grad_mode.set_multithreading_enabled": "threads of autograd",
    "torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch": "torch does not tell",
    "torch.autograd.graph.set_override_stale_capture_stream": "torch does not tell",
    "torch.backends.mha.set_fastpath_enabled": "fast path", "torch.backends.nnpack.set_flags": "NNPACK",
    "torch.hub.set_dir": "folder of the hub", "torch.multiprocessing.set_sharing_strategy": "sharing",
    "torch.serialization.set_default_load_endianness": "byte order", "torch.serialization.set_crc32_options": "checksums",
    "torch.serialization.set_default_mmap_options": "mapping of files",
    "torch.utils.checkpoint.set_checkpoint_debug_enabled": "a variable",
    "torch.utils.checkpoint.set_checkpoint_early_stop": "a variable",
    "torch.utils.checkpoint.set_device_states": "random generators",
    "torch.utils.data.datapipes.dataframe.dataframe_wrapper.set_df_wrapper": "a hook of another package",
    "torch.jit._fuser.set_fusion_strategy": "torch tells only who sets it",
    "torch.compiler.set_stance": "recordings set it too", "torch.compiler.set_default_backend": "loads the compiler",
    "torch.compiler.set_enable_guard_collectives": "loads the compiler",
    "torch.set_vital": "a note that nothing reads, of older torch",
}  # fmt: skip
"""Public functions of torch that set something, and by which name it is put back, or why it is not."""
NO_SETTING = (
    "torch.cuda",
    "torch.xpu",
    "torch.mtia",
    "torch.mps",
    "torch.cpu",
    "torch.accelerator",
    "torch.distributed",
    "torch.fx",
)
"""Of a GPU or of a process group, which have files of their own, or of a graph."""


def _setters():
    """Where each public `set_...` of torch is defined, of modules that `import torch` loads."""
    code = "import sys, torch; print([name for name in sys.modules if name.split('.')[0] == 'torch'])"
    loaded = ast.literal_eval(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    parts = [importlib.import_module(name) for name in loaded if not any(part.startswith("_") for part in name.split("."))]
    members = [each for part in parts for name, each in list(vars(part).items()) if name.startswith("set_")]
    return {
        f"{each.__module__}.{each.__name__}" for each in members if str(getattr(each, "__module__", "")).startswith("torch")
    }


def test_every_setter_of_torch_is_known():
    found = {
        name for name in _setters() if not name.startswith((*NO_SETTING, "torch._C", "torch._utils", "torch.utils.set_module"))
    }
    assert found - ELSEWHERE.keys() == set()
    assert "torch.set_num_threads" in found


def test_every_flag_of_torch_that_can_be_read_is_known():
    readers = {name.removeprefix("_get_") for name in dir(torch._C) if f"_set_{name.removeprefix('_get_')}" in dir(torch._C)}
    kept = {switch.word for switch in torch_settings()}
    assert readers - kept - set(NO_FLAGS) == set()


NO_FLAGS = {
    "deterministic_algorithms": "together with what only warns",
    "dispatch_mode": "a stack", "graph_exec_group": "of distributed graphs", "only_lift_cpu_tensors": "inside a trace",
    "tensor_metadata": "of one tensor", "thread_name": "of this thread", "tracing_state": "inside a trace",
    "value_trace": "inside a trace", "torch_function_state": "inside torch",
}  # fmt: skip


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
