"""Modules entered and left: two global hooks, which also fire in the replicas' threads."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from devwidget.capture import parallel
from devwidget.capture.state import State
from devwidget.capture.tensors import tensors_in


@contextlib.contextmanager
def module_hooks(state: State) -> Iterator[None]:
    """Follow every module call until the block ends."""
    watched: dict[int, contextlib.ExitStack] = {}

    def before(module: nn.Module, args: Any) -> None:
        state.places.enter(module, time.perf_counter(), state.log.number())
        if isinstance(module, nn.DataParallel) and id(module) not in watched:
            stack = watched[id(module)] = contextlib.ExitStack()
            stack.enter_context(parallel.watching(module, state))

    def after(module: nn.Module, args: Any, *rest: Any) -> None:
        # When forward raises, torch calls an `always_call` hook without the keyword arguments.
        failed = len(rest) == 1
        kwargs, result = ({}, None) if failed else rest
        running = state.places.leave(module)
        if running is not None and running.path is not None:
            here = state.places.here
            here.failed = (here.failed if here.failed is not None else running.path) if failed else None
        if isinstance(module, nn.DataParallel) and id(module) in watched:
            watched.pop(id(module)).close()
        if running is None or running.path is None:
            return
        state.log.module(
            running.path,
            type(module).__name__,
            running.replica,
            _devices((args, kwargs)),
            _devices(result),
            time.perf_counter() - running.started,
            failed=failed,
            number=running.number,
            started=running.started - state.started,
        )

    handles = [
        register_module_forward_pre_hook(before),
        register_module_forward_hook(after, with_kwargs=True, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for stack in list(watched.values()):
            stack.close()


def _devices(value: Any) -> set[torch.device]:
    return {tensor.device for tensor in tensors_in(value, depth=3)}
