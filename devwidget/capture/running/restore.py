"""Keeping: model, optimizer and random state are bit-identical after the block, whatever happened inside."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from devwidget.capture.tensors import tensors_in

Undo = Callable[[], None]


@contextlib.contextmanager
def keeping(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> Iterator[None]:
    """Put back parameters, buffers, gradients, plain attributes, flags, optimizer state and random generators."""
    undo = [*_random_state(), *_modules(model), *_gradients(model, optimizer), *_optimizer(optimizer)]
    try:
        yield
    finally:
        with torch.no_grad():
            for step in undo:
                step()


def _saved(tensor: torch.Tensor) -> Undo:
    """Undo of writes into a tensor; the copy waits on the host, because device memory may be short."""
    if tensor.is_meta or nn.parameter.is_lazy(tensor) or tensor.layout is not torch.strided:
        return lambda: None
    kept, version = tensor.detach().to("cpu", copy=True), tensor._version
    overlapping = any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))

    def undo() -> None:
        # An expanded tensor cannot be written as a whole. Others are, since `.data` writes leave no version behind.
        if not overlapping or tensor._version != version:
            tensor.detach().copy_(kept)

    return undo


def _modules(model: nn.Module) -> Iterator[Undo]:
    for module in model.modules():
        yield from map(_saved, tensors_in([dict(module._parameters), dict(module._buffers), _plain(module)], depth=4))
        yield _namespace(module)


def _plain(module: nn.Module) -> dict[str, Any]:
    return {key: value for key, value in module.__dict__.items() if not key.startswith("_")}


def _namespace(module: nn.Module) -> Undo:
    """Undo of attributes that were set, replaced or removed, and of entries in the module's own dicts and lists."""
    if isinstance(module, torch.jit.ScriptModule):
        return lambda: None  # its attributes live in C++
    before = dict(module.__dict__)
    dicts = {key: dict(value) for key, value in before.items() if isinstance(value, dict)}
    lists = {key: list(value) for key, value in before.items() if type(value) is list}

    def undo() -> None:
        for key in module.__dict__.keys() - before.keys():
            del module.__dict__[key]
        module.__dict__.update(before)
        for key, content in dicts.items():
            before[key].clear()
            before[key].update(content)
        for key, items in lists.items():
            before[key][:] = items

    return undo


def _gradients(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> Iterator[Undo]:
    groups = optimizer.param_groups if optimizer is not None else ()
    owned = {id(p): p for p in (*model.parameters(), *(p for group in groups for p in group["params"]))}
    for parameter in owned.values():
        grad = parameter.grad
        if grad is not None:
            yield _saved(grad)
        yield _grad_slot(parameter, grad)


def _grad_slot(parameter: torch.Tensor, grad: torch.Tensor | None) -> Undo:
    def undo() -> None:
        parameter.grad = grad

    return undo


def _optimizer(optimizer: torch.optim.Optimizer | None) -> Iterator[Undo]:
    if optimizer is None:
        return
    for group in optimizer.param_groups:
        yield from map(_saved, group["params"])
    state = {key: dict(value) if isinstance(value, dict) else value for key, value in optimizer.state.items()}
    yield from map(_saved, tensors_in(list(state.values()), depth=4))
    groups = [dict(group) for group in optimizer.param_groups]

    def undo() -> None:
        optimizer.state.clear()
        optimizer.state.update(state)
        for group, content in zip(optimizer.param_groups, groups, strict=True):
            group.clear()
            group.update(content)

    yield undo


def _random_state() -> Iterator[Undo]:
    kept = random.getstate()
    yield lambda: random.setstate(kept)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy_state = numpy.random.get_state()
        yield lambda: numpy.random.set_state(numpy_state)
    cpu = torch.get_rng_state()
    yield lambda: torch.set_rng_state(cpu)
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        cuda = torch.cuda.get_rng_state_all()
        yield lambda: torch.cuda.set_rng_state_all(cuda)
    if torch.backends.mps.is_available():
        mps = torch.mps.get_rng_state()
        yield lambda: torch.mps.set_rng_state(mps)
