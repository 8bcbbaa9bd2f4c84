"""Settings of torch and of Python that a training step changes are what they were after it."""

import os
import sys
import warnings

import pytest
import torch
from torch import nn

from devwidget.capture.restore import keep_state

B = torch.backends

CHANGES = {
    "grad mode": (lambda: torch.set_grad_enabled(False), torch.is_grad_enabled),
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
    "default device": (lambda: torch.set_default_device("meta"), torch.get_default_device),
    "threads": (lambda: torch.set_num_threads(torch.get_num_threads() + 1), torch.get_num_threads),
    "deterministic algorithms": (
        lambda: torch.set_deterministic_debug_mode("warn"), torch.get_deterministic_debug_mode),
    "precision of products": (lambda: torch.set_float32_matmul_precision("medium"), torch.get_float32_matmul_precision),
    "autocast": (lambda: torch.set_autocast_enabled("cpu", True), lambda: torch.is_autocast_enabled("cpu")),
    "autocast's dtype": (lambda: torch.set_autocast_dtype("cpu", torch.float16), lambda: torch.get_autocast_dtype("cpu")),
    "autocast that was entered": (lambda: torch.autocast("cpu").__enter__(), lambda: (
        torch.autocast_increment_nesting(), torch.autocast_decrement_nesting())),
    "precision everywhere": (lambda: setattr(B, "fp32_precision", "ieee"), lambda: B.fp32_precision),
    "precision of CUDA's products": (
        lambda: setattr(B.cuda.matmul, "fp32_precision", "ieee"), lambda: B.cuda.matmul.fp32_precision),
    "folder": (lambda: os.chdir("/"), os.getcwd),
    "paths": (lambda: sys.path.append("/nowhere"), lambda: list(sys.path)),
    "warnings": (lambda: warnings.filterwarnings("ignore", "something new"), lambda: list(warnings.filters)),
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
