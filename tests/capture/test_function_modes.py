"""Function modes of the user see the calls that they see unwatched, and no operator of autograd or of a script."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import devwidget
from devwidget.capture import torch_internals

WEIGHT = torch.randn(3, 3, requires_grad=True)


class Counting(TorchFunctionMode):
    """Counts calls by name."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[getattr(func, "__name__", str(func))] += 1
        return func(*args, **(kwargs or {}))


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    scripted = torch.jit.script(doubled)


def hooked(x: torch.Tensor) -> None:
    hidden = x @ WEIGHT
    hidden.register_hook(lambda grad: grad * 2)
    hidden.sum().backward()


PROGRAMS = {
    "scripted": scripted,
    "hooked": hooked,
    "recomputed": lambda x: checkpoint(torch.matmul, x, WEIGHT, use_reentrant=False).sum().backward(),
    "trained": lambda x: torch.autograd.backward([(x @ WEIGHT).sum()]),
}


def calls(program: Any, outer: Any, inner: Any) -> Counter[str]:
    x, mode = torch.randn(2, 3), Counting()
    with outer(), mode, inner():
        program(x)
    return mode.calls


def _simulate() -> Any:
    return devwidget.simulate(gpus=1)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    "around",
    [
        pytest.param((devwidget.record, contextlib.nullcontext), id="inside a recording"),
        pytest.param((contextlib.nullcontext, devwidget.record), id="outside a recording"),
        pytest.param((_simulate, contextlib.nullcontext), id="inside a simulation"),
    ],
)
def test_a_function_mode_of_the_user_sees_no_call_more_and_none_less(name: str, around: Any) -> None:
    if name != "hooked" and not torch_internals.has_name("skipping_function_modes"):
        pytest.skip(f"torch {torch.__version__} cannot keep operators from function modes")
    if name == "scripted" and around[0] is _simulate:
        pytest.skip("virtual GPUs run functions of TorchScript as they are written")
    calls(PROGRAMS[name], *around)  # what the first time imports is no part of it
    assert calls(PROGRAMS[name], *around) == calls(PROGRAMS[name], contextlib.nullcontext, contextlib.nullcontext)
